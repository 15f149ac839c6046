//! A server that says what a test tells it to: one function answers each
//! message of each call.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{Notify, mpsc},
};
use tokio_rustls::TlsAcceptor;

/// One message that has come.
pub struct Call {
    pub path: String,
    pub metadata: HeaderMap,
    pub message: Bytes,
    /// Which connection it came on, from 0.
    pub connection: usize,
    pub scheme: String,
}

impl Call {
    pub fn method(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }

    pub fn read<M: Message + Default>(&self) -> M {
        M::decode(self.message.clone()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(|v| v.to_str().unwrap())
    }
}

/// What is done about it.
#[derive(Default)]
pub struct Reply {
    pub messages: Vec<Bytes>,
    pub end: Option<End>,
}

pub enum End {
    /// The call is over: code and text.
    Status(u8, &'static str),
    /// The connection breaks.
    Cut,
    /// Nothing more is said.
    Hang,
}

impl Reply {
    pub fn with(message: &impl Message) -> Reply {
        Reply { messages: vec![message.encode_to_vec().into()], end: None }
    }

    pub fn fails(code: u8, text: &'static str) -> Reply {
        Reply { messages: Vec::new(), end: Some(End::Status(code, text)) }
    }

    pub fn and(mut self, message: &impl Message) -> Reply {
        self.messages.push(message.encode_to_vec().into());
        self
    }

    pub fn ends(self, end: End) -> Reply {
        Reply { end: Some(end), ..self }
    }
}

pub const UNAVAILABLE: u8 = 14;

type Answer = Arc<Mutex<dyn FnMut(Call) -> Reply + Send>>;

/// The server, for as long as it is not dropped.
pub struct Fake {
    pub endpoint: String,
    connections: Arc<AtomicUsize>,
    accept: tokio::task::JoinHandle<()>,
    cut: Arc<Notify>,
}

impl Fake {
    pub async fn new(answer: impl FnMut(Call) -> Reply + Send + 'static) -> Fake {
        Fake::on("127.0.0.1:0", None, answer).await
    }

    pub async fn on(
        address: &str,
        tls: Option<TlsAcceptor>,
        answer: impl FnMut(Call) -> Reply + Send + 'static,
    ) -> Fake {
        let listener = TcpListener::bind(address).await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        Fake::serve(endpoint, tls, answer, move || {
            // Boxed, so that both kinds of listener are one.
            let accepted = listener.accept().now_or_never();
            accepted.map(|a| Box::new(a.unwrap().0) as Box<dyn Wire>)
        })
    }

    pub fn unix(path: &Path, tls: Option<TlsAcceptor>, answer: impl FnMut(Call) -> Reply + Send + 'static) -> Fake {
        let listener = UnixListener::bind(path).unwrap();
        Fake::serve(format!("unix://{}", path.display()), tls, answer, move || {
            listener.accept().now_or_never().map(|a| Box::new(a.unwrap().0) as Box<dyn Wire>)
        })
    }

    fn serve(
        endpoint: String,
        tls: Option<TlsAcceptor>,
        answer: impl FnMut(Call) -> Reply + Send + 'static,
        mut accept: impl FnMut() -> Option<Box<dyn Wire>> + Send + 'static,
    ) -> Fake {
        let answer: Answer = Arc::new(Mutex::new(answer));
        let connections = Arc::new(AtomicUsize::new(0));
        let cut = Arc::new(Notify::new());
        let (counted, broken) = (Arc::clone(&connections), Arc::clone(&cut));
        let accept = tokio::spawn(async move {
            loop {
                let Some(wire) = accept() else {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                    continue;
                };
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let (answer, tls, broken) = (Arc::clone(&answer), tls.clone(), Arc::clone(&broken));
                tokio::spawn(async move {
                    let cut = Arc::new(Notify::new());
                    let end = Arc::clone(&cut);
                    tokio::select! {
                        () = connection(wire, tls, answer, number, cut) => {}
                        () = end.notified() => {}
                        () = broken.notified() => {}
                    }
                });
            }
        });
        Fake { endpoint, connections, accept, cut }
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Breaks all connections and takes no more.
    pub fn close(&self) {
        self.accept.abort();
        self.cut.notify_waiters();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.close();
    }
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

async fn connection(wire: Box<dyn Wire>, tls: Option<TlsAcceptor>, answer: Answer, number: usize, cut: Arc<Notify>) {
    let wire: Box<dyn Wire> = match tls {
        None => wire,
        Some(tls) => match tls.accept(wire).await {
            Ok(wire) => Box::new(wire),
            Err(_) => return,
        },
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, cut) = (Arc::clone(&answer), Arc::clone(&cut));
        async move { Ok::<_, Infallible>(call(request, answer, number, cut)) }
    });
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(wire), service).await;
}

type Frames = StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn call(request: Request<Incoming>, answer: Answer, number: usize, cut: Arc<Notify>) -> Response<Frames> {
    let (send, receive) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let status = converse(request, answer, number, cut, &send).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_str(&status.0.to_string()).unwrap());
        trailers.insert("grpc-message", HeaderValue::from_static(status.1));
        let _ = send.send(Frame::trailers(trailers));
    });
    let stream = futures_util::stream::unfold(receive, async |mut receive| {
        receive.recv().await.map(|frame| (Ok(frame), receive))
    });
    Response::builder().header("content-type", "application/grpc").body(StreamBody::new(stream.boxed())).unwrap()
}

async fn converse(
    request: Request<Incoming>,
    answer: Answer,
    connection: usize,
    cut: Arc<Notify>,
    send: &mpsc::UnboundedSender<Frame<Bytes>>,
) -> (u8, &'static str) {
    let (head, mut body) = request.into_parts();
    let mut buffer = BytesMut::new();
    loop {
        while buffer.len() >= 5 {
            let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
            if buffer.len() < 5 + length {
                break;
            }
            buffer.advance(5);
            let call = Call {
                path: head.uri.path().to_owned(),
                metadata: head.headers.clone(),
                message: buffer.split_to(length).freeze(),
                connection,
                scheme: head.uri.scheme_str().unwrap_or_default().to_owned(),
            };
            let reply = answer.lock().unwrap()(call);
            for message in reply.messages {
                let mut frame = BytesMut::new();
                frame.put_u8(0);
                frame.put_u32(message.len().try_into().unwrap());
                frame.put(message);
                let _ = send.send(Frame::data(frame.freeze()));
            }
            match reply.end {
                None => {}
                Some(End::Status(code, text)) => return (code, text),
                Some(End::Hang) => std::future::pending().await,
                Some(End::Cut) => {
                    // What was said before is to arrive first.
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    cut.notify_one();
                    std::future::pending().await
                }
            }
        }
        match body.frame().await {
            Some(Ok(frame)) => buffer.extend(frame.into_data().unwrap_or_default()),
            _ => return (0, ""),
        }
    }
}
