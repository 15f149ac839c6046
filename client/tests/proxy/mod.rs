//! A wire between client and server that can be cut.

use std::sync::{Arc, Mutex};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

pub struct Proxy {
    pub address: String,
    connections: Arc<Mutex<JoinSet<()>>>,
    accept: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(server: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let held = Arc::clone(&connections);
        let accept = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let server = server.clone();
                held.lock().unwrap().spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Proxy { address, connections, accept }
    }

    /// Breaks all connections; new ones can be made.
    pub fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    /// Breaks all connections and takes no more.
    pub fn close(&self) {
        self.accept.abort();
        self.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.close();
    }
}
