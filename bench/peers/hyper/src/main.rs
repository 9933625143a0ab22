//! bench/peers/hyper: peer FORM PORT DIR.  One thread serves; a log or files have writers of their own.

mod store;

use hyper::header::{CONTENT_TYPE, ETAG, IF_MATCH, LOCATION};
use hyper::service::{make_service_fn, service_fn};
use hyper::{Body, Method, Request, Response, Server};
use std::convert::Infallible;
use std::sync::Arc;
use store::{tag_text, Outcome, Put, Store};

fn empty(status: u16) -> hyper::http::response::Builder {
    Response::builder().status(status)
}

async fn answer(store: Arc<Store>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let response = match *request.method() {
        Method::GET => match store.get(&path) {
            None => empty(404).body(Body::empty()),
            Some(doc) => empty(200)
                .header(ETAG, tag_text(doc.tag))
                .header(CONTENT_TYPE, "application/octet-stream")
                .body(Body::from(doc.body)),
        },
        Method::PUT => {
            let if_match = request.headers().get(IF_MATCH).and_then(|v| v.to_str().ok()).map(str::to_owned);
            match hyper::body::to_bytes(request.into_body()).await {
                Err(_) => empty(400).body(Body::empty()),
                Ok(body) => match store.put(Put { path: path.clone(), body, if_match }).await {
                    Outcome::Created(tag) => empty(201).header(ETAG, tag_text(tag)).header(LOCATION, path).body(Body::empty()),
                    Outcome::Replaced(tag) => empty(204).header(ETAG, tag_text(tag)).body(Body::empty()),
                    Outcome::Failed(Some(tag)) => empty(412).header(ETAG, tag_text(tag)).body(Body::empty()),
                    Outcome::Failed(None) => empty(412).body(Body::empty()),
                },
            }
        }
        _ => empty(405).body(Body::empty()),
    };
    Ok(response.unwrap())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let store = Arc::new(Store::open(&arguments[1], &arguments[3]));
    let address = ([127, 0, 0, 1], arguments[2].parse().expect("port")).into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let make = make_service_fn(move |_| {
            let store = store.clone();
            async move { Ok::<_, Infallible>(service_fn(move |request| answer(store.clone(), request))) }
        });
        // answers to pipelined requests go out together
        Server::bind(&address).tcp_nodelay(true).http1_pipeline_flush(true).serve(make).await.unwrap();
    });
}
