//! How many writes to its socket an answer takes.

use super::*;
use crate::transport::{Door, Spares, connection};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// A stream that counts the calls that write to it.
struct Counted {
    stream: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn an_answer_of_many_frames_leaves_in_few_writes() {
    const KEYS: usize = 240;
    // Frames of 16 KiB at most: sixty.
    let items: Vec<Item> = (0..KEYS).map(|n| item(n, &[b'v'; 4000])).collect();
    let stage = stage(Settings::default(), walk(items, KEYS, 1000)).await;
    let (ours, theirs) = tokio::io::duplex(4 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Counted { stream: ours, writes: writes.clone() };
    tokio::spawn(connection(counted, Spares::default(), stage.edge.for_connection(None), Door::All));
    let (mut client, task) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(4 << 20)
        .handshake(TokioIo::new(theirs))
        .await
        .unwrap();
    tokio::spawn(task);
    let range = pb::RangeRequest { key: "key".into(), range_end: "kez".into(), ..Default::default() }.encode_to_vec();
    let request = Request::post("http://a/etcdserverpb.KV/Range").header("content-type", "application/grpc");
    let answer = client.send_request(request.body(Full::<Bytes>::from(framed(&range))).unwrap()).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let answer = pb::RangeResponse::decode(unframed(body).remove(0)).unwrap();
    assert_eq!(answer.kvs.len(), KEYS);
    let writes = writes.load(Ordering::Relaxed);
    assert!(writes <= 20, "{writes} writes for sixty frames");
}
