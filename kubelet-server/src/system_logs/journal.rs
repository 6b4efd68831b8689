//! Lines of services: from the journal, or from a file of the service's name.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::body::{self, Body};
use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use http::request::Parts;
use http::{HeaderValue, Response, header};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::query::{Options, Query};
use super::within;

/// For all of a query.
const DEADLINE: Duration = Duration::from_secs(30);
/// What is read at once. A client that does not read lets two of them wait.
const CHUNK: usize = 32 * 1024;

/// Answers with the lines of the query's services. The status is sent before the first line, so errors are lines, too.
pub(super) fn serve(root: PathBuf, command: PathBuf, query: Query, request: &Parts) -> Response<Body> {
    let (lines, receiver) = mpsc::channel(1);
    // A task of its own: the deadline counts for a client that does not read, too. It is aborted with the answer, which
    // kills journalctl, as the deadline does.
    let copying = tokio::spawn(async move {
        let copied = timeout(DEADLINE, copy(&root, &command, &query, &lines)).await;
        if copied.is_err() {
            tracing::debug!("node log query reached its deadline");
        }
    });
    let state = (receiver, AbortOnDropHandle::new(copying));
    let lines = futures::stream::unfold(state, |(mut receiver, copying)| async {
        let chunk: Bytes = receiver.recv().await?;
        Some((chunk, (receiver, copying)))
    });
    let gzip = request
        .headers
        .get(header::ACCEPT_ENCODING)
        .is_some_and(|accepted| accepted == "gzip");
    let mut response = Response::new(match gzip {
        true => body::streamed(compressed(lines)),
        false => body::streamed(lines.map(io::Result::Ok)),
    });
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain;charset=UTF-8"),
    );
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn compressed(
    chunks: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    futures::stream::unfold(Some((Box::pin(chunks), encoder)), |state| async {
        let (mut chunks, mut encoder) = state?;
        match chunks.next().await {
            Some(chunk) => {
                let written = encoder.write_all(&chunk).and_then(|()| encoder.flush());
                let written = written.map(|()| Bytes::from(std::mem::take(encoder.get_mut())));
                Some((written, Some((chunks, encoder))))
            }
            None => Some((encoder.finish().map(Bytes::from), None)),
        }
    })
}

/// The receiver is gone, and with it the client.
struct Gone;

type Lines = mpsc::Sender<Bytes>;

async fn copy(root: &Path, command: &Path, query: &Query, lines: &Lines) -> Result<(), Gone> {
    let in_journal = in_journal(command, &query.services).await;
    let of_kind = |journal: bool| {
        let services = query.services.iter().zip(&in_journal);
        let services = services.filter(move |&(_, &found)| found == journal);
        services.map(|(service, _)| service.as_str()).collect::<Vec<_>>()
    };
    let (journal, files) = (of_kind(true), of_kind(false));
    if !journal.is_empty() {
        copy_journal(command, &query.options, &journal, lines).await?;
    }
    if !files.is_empty() && query.options != Options::default() {
        let files = files.join(" ");
        let message = format!(
            "\noptions present and query resolved to log files for [{files}]\ntry without specifying options\n"
        );
        return send(lines, message).await;
    }
    for service in files {
        copy_file_of(root, service, lines).await?;
    }
    Ok(())
}

/// For each service whether the journal has its unit.
async fn in_journal(command: &Path, services: &[String]) -> Vec<bool> {
    let units: Vec<String> = services
        .iter()
        .map(|service| format!("{service}.service"))
        .collect();
    let found = find_units(command, &units).await;
    // Without a journal, the services may have files.
    found.unwrap_or_else(|_| vec![false; services.len()])
}

async fn find_units(command: &Path, units: &[String]) -> io::Result<Vec<bool>> {
    let mut found = vec![false; units.len()];
    let mut child = Command::new(command)
        .args(["--field", "_SYSTEMD_UNIT"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            // No unit has a longer name.
            let mut limited = (&mut output).take(CHUNK as u64);
            if limited.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            let line = String::from_utf8_lossy(&line);
            for (found, unit) in found.iter_mut().zip(units) {
                *found |= line.contains(unit.as_str());
            }
        }
    }
    match child.wait().await?.success() {
        true => Ok(found),
        false => Err(io::Error::other("cannot list the units of the journal")),
    }
}

async fn copy_journal(
    command: &Path,
    options: &Options,
    services: &[&str],
    lines: &Lines,
) -> Result<(), Gone> {
    let spawned = Command::new(command)
        .args(arguments(options, services))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            tracing::warn!(command = %command.display(), %error, "cannot read the journal");
            return match options.boot {
                None | Some(0) => send(lines, "\nerror: journal output not available\n").await,
                Some(_) => Ok(()),
            };
        }
    };
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let (output, errors) = tokio::join!(copy_all(output, lines), copy_all(errors, lines));
    output?;
    errors?;
    // It has closed its output, and whatever its status is, it has said what there is to say.
    let _ = child.wait().await;
    Ok(())
}

/// The arguments of `journalctl`.
pub(super) fn arguments(options: &Options, services: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        "--utc".to_owned(),
        "--no-pager".to_owned(),
        "--output=short-precise".to_owned(),
    ];
    // Without the zone, journalctl would take it as a local time.
    let written = |at: jiff::Timestamp| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    if let Some(since) = &options.since {
        arguments.push(format!("--since={}", written(since.at)));
    }
    if let Some(until) = &options.until {
        arguments.push(format!("--until={}", written(until.at)));
    }
    if let Some(tail) = options.tail_lines {
        arguments.push("--pager-end".to_owned());
        arguments.push(format!("--lines={tail}"));
    }
    arguments.extend(services.iter().map(|service| format!("--unit={service}")));
    if !options.pattern.is_empty() {
        arguments.push(format!("--grep={}", options.pattern));
        arguments.push("--case-sensitive=false".to_owned());
    }
    if let Some(boot) = options.boot {
        arguments.push("--boot".to_owned());
        arguments.push(boot.to_string());
    }
    arguments
}

/// The first of the places where the log of a service may be.
async fn copy_file_of(root: &Path, service: &str, lines: &Lines) -> Result<(), Gone> {
    for name in [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ] {
        let error = match within::open(root, &name).await {
            // A folder of this name may have the log.
            Ok(file) if file.metadata().await.is_ok_and(|metadata| metadata.is_dir()) => continue,
            Ok(file) => return copy_all(Some(file), lines).await,
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::NotFound {
            let why = within::explain(&error);
            let message = format!("\nerror getting log for {service}: openat {name}: {why}\n");
            return send(lines, message).await;
        }
    }
    send(lines, format!("\nlog not found for {service}\n")).await
}

async fn copy_all(from: Option<impl AsyncRead + Unpin>, lines: &Lines) -> Result<(), Gone> {
    let Some(mut from) = from else {
        return Ok(());
    };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        match (&mut from).take(CHUNK as u64).read_buf(&mut buffer).await {
            Ok(0) => return Ok(()),
            Ok(_) => send(lines, buffer.split().freeze()).await?,
            Err(error) => {
                tracing::warn!(%error, "cannot read a log of the node");
                return Ok(());
            }
        }
    }
}

async fn send(lines: &Lines, chunk: impl Into<Bytes>) -> Result<(), Gone> {
    lines.send(chunk.into()).await.map_err(|_| Gone)
}
