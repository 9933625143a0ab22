//! bench/peers/axum: peer FORM PORT DIR.  One thread serves; a log or files have writers of their own.

// the hyper peer's: `peer build` copies it here
mod store;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_MATCH, LOCATION};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::Router;
use std::sync::Arc;
use store::{tag_text, Outcome, Put, Store};

async fn document_get(State(store): State<Arc<Store>>, uri: Uri) -> Response {
    match store.get(uri.path()) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(doc) => ([(ETAG, tag_text(doc.tag)), (CONTENT_TYPE, "application/octet-stream".to_owned())], Body::from(doc.body)).into_response(),
    }
}

async fn document_put(State(store): State<Arc<Store>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    let if_match = headers.get(IF_MATCH).and_then(|v| v.to_str().ok()).map(str::to_owned);
    match store.put(Put { path: path.clone(), body, if_match }).await {
        Outcome::Created(tag) => (StatusCode::CREATED, [(ETAG, tag_text(tag)), (LOCATION, path)]).into_response(),
        Outcome::Replaced(tag) => (StatusCode::NO_CONTENT, [(ETAG, tag_text(tag))]).into_response(),
        Outcome::Failed(Some(tag)) => (StatusCode::PRECONDITION_FAILED, [(ETAG, tag_text(tag))]).into_response(),
        Outcome::Failed(None) => StatusCode::PRECONDITION_FAILED.into_response(),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let store = Arc::new(Store::open(&arguments[1], &arguments[3]));
    let port: u16 = arguments[2].parse().expect("port");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let app = Router::new()
            .route("/{*path}", get(document_get).put(document_put))
            .layer(DefaultBodyLimit::max(64 << 20))
            .with_state(store);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap().tap_io(|tcp| {
            let _ = tcp.set_nodelay(true);
        });
        axum::serve(listener, app).await.unwrap();
    });
}
