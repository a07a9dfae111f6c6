//! A proxy in front of the API server that meets requests with a chosen fault. `kubectl proxy` behind it has the way to
//! the server, so that both of its sides are plain HTTP.

// Each user needs other parts.
#![allow(dead_code)]

use crate::support::{ControlPlane, free_ports, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The outcome of requests.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// This status, with a text that no API server writes.
    Status(u16),
    /// This status and body for paths with a part.
    Body(&'static str, u16, &'static str),
    /// The beginning of an answer.
    Half,
    /// The end of the connection.
    Away,
    /// A connection without a byte.
    Silent,
}

pub struct Proxy {
    fault: watch::Sender<Option<Fault>>,
    /// The port of the API server behind it.
    server: Arc<AtomicU16>,
    /// The requests that met a fault.
    met: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts the proxy, and leads the driver's kubeconfig to it from its next start on.
    pub async fn start(plane: &mut ControlPlane) -> Proxy {
        let port = listens(plane).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        plane.kubeconfig_by_proxy("kubeconfig", listener.local_addr().unwrap().port());
        let proxy = Proxy {
            fault: watch::channel(None).0,
            server: Arc::new(port.into()),
            met: Arc::default(),
        };
        let (fault, met) = (proxy.fault.subscribe(), proxy.met.clone());
        let server = proxy.server.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let port = server.load(Ordering::SeqCst);
                tokio::spawn(serve(client, port, fault.clone(), met.clone()));
            }
        });
        proxy
    }

    /// From now on requests meet this fault, or none. Ends all requests at work.
    pub fn set(&self, fault: Option<Fault>) {
        self.met.store(0, Ordering::SeqCst);
        self.fault.send_replace(fault);
    }

    /// Leads to another API server from one moment to the next.
    pub async fn lead_to(&self, plane: &mut ControlPlane) {
        let port = listens(plane).await;
        self.server.store(port, Ordering::SeqCst);
        self.set(None);
    }

    /// The requests that met the present fault.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }
}

/// Starts kubectl's proxy, which needs no token. Returns its port.
async fn listens(plane: &mut ControlPlane) -> u16 {
    let [port] = free_ports();
    let kubeconfig = plane.at("kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let flag = format!("--port={port}");
    // It reads the file once, at its start.
    plane.run("kubectl", &["proxy", &flag, &kubeconfig]);
    until("kubectl proxy listens", async || {
        TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    })
    .await;
    port
}

/// Serves one request.
async fn serve(
    mut client: TcpStream,
    server: u16,
    mut faults: watch::Receiver<Option<Fault>>,
    met: Arc<AtomicUsize>,
) {
    let Some((head, body)) = head(&mut client).await else {
        return;
    };
    let fault = *faults.borrow_and_update();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let hits = match fault {
        Some(Fault::Body(part, ..)) => path.contains(part),
        other => other.is_some(),
    };
    if let Some(fault) = fault.filter(|_| hits) {
        met.fetch_add(1, Ordering::SeqCst);
        if let Fault::Silent = fault {
            // Until the other side gives up, or another fault.
            tokio::select! {
                _ = client.read_u8() => {}
                _ = faults.changed() => {}
            }
            return;
        }
        return misbehave(&mut client, fault).await;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else {
        return;
    };
    // The answer ends with its connection.
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let asked = [head.as_bytes(), &body].concat();
    if server.write_all(&asked).await.is_ok() {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            // Without its Proxy no other fault comes.
            Ok(()) = faults.changed() => {}
        }
    }
}

/// Reads the head of a request, and what came of its body with it.
async fn head(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            let body = read.split_off(end + 4);
            return Some((String::from_utf8(read).ok()?, body));
        }
        match client.read_buf(&mut read).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

async fn misbehave(client: &mut TcpStream, fault: Fault) {
    let (status, length, body) = match fault {
        Fault::Status(status) => (status, None, "answered by the proxy of a test"),
        Fault::Body(_, status, body) => (status, None, body),
        Fault::Half => (
            200,
            Some(5000),
            "{\"kind\": \"ResourceClaim\", \"metadata\": {",
        ),
        Fault::Away | Fault::Silent => return,
    };
    let length = length.unwrap_or(body.len());
    let answer = format!(
        "HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    let _ = client.write_all(answer.as_bytes()).await;
    // Read the rest of the request: a socket that is closed before may lose the answer.
    let _ = client.shutdown().await;
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
}
