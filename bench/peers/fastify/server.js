// bench/peers/fastify/server.js - documents in Node, as one would write it: node server.js FORM PORT DIR
//
//	memory	a Map
//	log	a Map, and an append-only log: one fdatasync for all writes that wait (group commit)
//	files	a Map, and a file per document: temporary file, fsync, rename, fsync of the folder
//	sqlite	better-sqlite3, WAL, synchronous=FULL, a transaction per write
//
// GET and PUT with ETag, If-Match and If-None-Match: *; a write is answered when it is durable, and visible then.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const [form, port, dir] = process.argv.slice(2);
const docs = new Map(); // path -> { tag, body, modified }
let last = Date.now() * 1000;

// Writes are decided when they are applied, one after another.
function decide(name, doc, match, none) {
	const now = docs.get(name);
	if (match !== undefined && (now === undefined || (match !== '*' && match !== now.tag))) return { status: 412, tag: now?.tag };
	if (none === '*' && now !== undefined) return { status: 412, tag: now.tag };
	doc.tag = `"${++last}"`;
	docs.set(name, doc);
	return { status: now === undefined ? 201 : 204, tag: doc.tag };
}

const open = promisify(fs.open), close = promisify(fs.close), fsync = promisify(fs.fsync), fdatasync = promisify(fs.fdatasync);
const write = promisify(fs.write), writev = promisify(fs.writev), rename = promisify(fs.rename);

const memory = {
	get: (name) => docs.get(name),
	put: (name, doc, match, none) => decide(name, doc, match, none),
};

const log = {
	waiting: [], busy: false, at: 0,
	start() { this.fd = fs.openSync(path.join(dir, 'log'), 'a'); },
	get: memory.get,
	put(name, doc, match, none) {
		return new Promise((resolve, reject) => {
			this.waiting.push({ name, doc, match, none, resolve, reject });
			if (!this.busy) this.run();
		});
	},
	async run() {
		this.busy = true;
		// those that came in the same round of the event loop go together
		await new Promise(setImmediate);
		while (this.waiting.length > 0) {
			const batch = this.waiting;
			this.waiting = [];
			try {
				const parts = [];
				for (const w of batch) {
					const head = Buffer.alloc(16 + Buffer.byteLength(w.name));
					head.writeUInt32LE(w.doc.body.length, 0);
					head.writeUInt32LE(head.length - 16, 4);
					head.write(w.name, 16);
					parts.push(head, w.doc.body);
				}
				for (let i = 0; i < parts.length; i += 1000) await writev(this.fd, parts.slice(i, i + 1000));
				await fdatasync(this.fd);
				for (const w of batch) w.resolve(decide(w.name, w.doc, w.match, w.none));
			} catch (e) {
				for (const w of batch) w.reject(e);
			}
		}
		this.busy = false;
	},
};

const files = {
	locks: new Map(), count: 0,
	start() { this.dirfd = fs.openSync(dir, 'r'); },
	get: memory.get,
	// one write of a document at a time
	async put(name, doc, match, none) {
		const before = this.locks.get(name);
		let done;
		const mine = new Promise((resolve) => { done = resolve; });
		this.locks.set(name, mine);
		await before;
		try {
			const temporary = path.join(dir, `.t${++this.count}`);
			const fd = await open(temporary, 'w');
			await write(fd, doc.body);
			await fsync(fd);
			await close(fd);
			await rename(temporary, path.join(dir, encodeURIComponent(name)));
			await fsync(this.dirfd);
			return decide(name, doc, match, none);
		} finally {
			done();
			if (this.locks.get(name) === mine) this.locks.delete(name);
		}
	},
};

const sqlite = {
	start() {
		const db = new (require('better-sqlite3'))(path.join(dir, 'documents.db'));
		db.pragma('journal_mode = WAL');
		db.pragma('synchronous = FULL');
		db.exec('CREATE TABLE IF NOT EXISTS doc (path TEXT PRIMARY KEY, tag TEXT, modified INTEGER, body BLOB) WITHOUT ROWID');
		this.select = db.prepare('SELECT tag, modified, body FROM doc WHERE path = ?');
		const tag = db.prepare('SELECT tag FROM doc WHERE path = ?').pluck();
		const upsert = db.prepare('INSERT OR REPLACE INTO doc VALUES (?, ?, ?, ?)');
		this.put = db.transaction((name, doc, match, none) => {
			const now = tag.get(name);
			if (match !== undefined && (now === undefined || (match !== '*' && match !== now))) return { status: 412, tag: now };
			if (none === '*' && now !== undefined) return { status: 412, tag: now };
			doc.tag = `"${++last}"`;
			upsert.run(name, doc.tag, doc.modified, doc.body);
			return { status: now === undefined ? 201 : 204, tag: doc.tag };
		}).immediate;
	},
	get(name) { return this.select.get(name); },
};

const store = { memory, log, files, sqlite }[form];
if (store.start) store.start();

const app = require('fastify')({ bodyLimit: 64 << 20, keepAliveTimeout: 3600000 });
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, body, done) => done(null, body));
app.get('/*', (request, reply) => {
	const doc = store.get(request.url);
	if (doc === undefined) return reply.code(404).send();
	return reply.header('ETag', doc.tag).header('Last-Modified', new Date(doc.modified).toUTCString()).type('application/octet-stream').send(doc.body);
});
app.put('/*', async (request, reply) => {
	const doc = { body: request.body ?? Buffer.alloc(0), modified: Date.now() };
	const done = await store.put(request.url, doc, request.headers['if-match'], request.headers['if-none-match']);
	if (done.tag !== undefined) reply.header('ETag', done.tag);
	if (done.status === 201) reply.header('Location', request.url);
	return reply.code(done.status).send();
});
app.listen({ port: Number(port), host: '127.0.0.1', backlog: 4096 });
