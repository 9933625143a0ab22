//! Documents as one would write them in Rust: the store of the hyper and axum peers.
//!
//! memory  a map
//! log     a map, and an append-only log: one fdatasync for all writes that wait (group commit)
//! files   a map, and a file per document: temporary file, fsync, rename, fsync of the folder
//!
//! A write is decided, visible and answered when it is durable.  Nothing is read back at a start: this is to be
//! measured, not used.

use bytes::Bytes;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{mpsc, Arc, Mutex};
use tokio::sync::oneshot;

#[derive(Clone)]
pub struct Doc {
    pub tag: u64,
    pub body: Bytes,
}

pub enum Outcome {
    Created(u64),
    Replaced(u64),
    Failed(Option<u64>),
}

pub struct Put {
    pub path: String,
    pub body: Bytes,
    pub if_match: Option<String>,
}

struct Map {
    docs: HashMap<String, Doc>,
    last: u64,
}

type Shared = Arc<Mutex<Map>>;
type Queue = Mutex<mpsc::Sender<(Put, oneshot::Sender<Outcome>)>>;

pub struct Store {
    map: Shared,
    /// None: memory.  One for a log; several for files, a document always to the same.
    queues: Option<Vec<Queue>>,
}

pub fn tag_text(tag: u64) -> String {
    format!("\"{:x}\"", tag)
}

fn apply(map: &Shared, put: Put) -> Outcome {
    let mut map = map.lock().unwrap();
    let now = map.docs.get(&put.path).map(|d| d.tag);
    if let Some(want) = put.if_match {
        if now.map_or(true, |tag| want != "*" && want != tag_text(tag)) {
            return Outcome::Failed(now);
        }
    }
    map.last += 1;
    let tag = map.last;
    map.docs.insert(put.path, Doc { tag, body: put.body });
    if now.is_some() {
        Outcome::Replaced(tag)
    } else {
        Outcome::Created(tag)
    }
}

fn run_log(map: Shared, dir: PathBuf, queue: mpsc::Receiver<(Put, oneshot::Sender<Outcome>)>) {
    let mut log = File::create(dir.join("log")).expect("log");
    let mut bytes = Vec::new();
    while let Ok(first) = queue.recv() {
        let mut batch = vec![first];
        batch.extend(queue.try_iter());
        bytes.clear();
        for (put, _) in &batch {
            bytes.extend_from_slice(&(put.body.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(put.path.len() as u32).to_le_bytes());
            bytes.extend_from_slice(put.path.as_bytes());
            bytes.extend_from_slice(&put.body);
        }
        log.write_all(&bytes).expect("write");
        log.sync_data().expect("fdatasync");
        for (put, reply) in batch {
            let _ = reply.send(apply(&map, put));
        }
    }
}

fn write_file(dir: &Path, folder: &File, number: usize, put: &Put) -> std::io::Result<()> {
    let temporary = dir.join(format!(".t{}", number));
    let mut file = File::create(&temporary)?;
    file.write_all(&put.body)?;
    file.sync_all()?;
    std::fs::rename(&temporary, dir.join(put.path.replace('/', "%2F")))?;
    folder.sync_all()
}

fn run_files(map: Shared, dir: PathBuf, number: usize, queue: mpsc::Receiver<(Put, oneshot::Sender<Outcome>)>) {
    let folder = File::open(&dir).expect("folder");
    for (put, reply) in queue {
        write_file(&dir, &folder, number, &put).expect("write");
        let _ = reply.send(apply(&map, put));
    }
}

impl Store {
    pub fn open(form: &str, dir: &str) -> Store {
        let map: Shared = Arc::new(Mutex::new(Map { docs: HashMap::new(), last: 0 }));
        let threads = match form {
            "memory" => 0,
            "log" => 1,
            "files" => 16,
            _ => panic!("{}: memory, log or files", form),
        };
        let mut queues = Vec::new();
        for number in 0..threads {
            let (send, receive) = mpsc::channel();
            let (map, dir) = (map.clone(), PathBuf::from(dir));
            let log = form == "log";
            std::thread::spawn(move || if log { run_log(map, dir, receive) } else { run_files(map, dir, number, receive) });
            queues.push(Mutex::new(send));
        }
        Store { map, queues: if threads > 0 { Some(queues) } else { None } }
    }

    pub fn get(&self, path: &str) -> Option<Doc> {
        self.map.lock().unwrap().docs.get(path).cloned()
    }

    pub async fn put(&self, put: Put) -> Outcome {
        let queues = match &self.queues {
            None => return apply(&self.map, put),
            Some(queues) => queues,
        };
        let mut hash = std::collections::hash_map::DefaultHasher::new();
        put.path.hash(&mut hash);
        let (reply, answer) = oneshot::channel();
        let queue = &queues[hash.finish() as usize % queues.len()];
        queue.lock().unwrap().send((put, reply)).ok().expect("the writer is gone");
        answer.await.expect("the writer is gone")
    }
}
