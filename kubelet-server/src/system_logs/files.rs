//! Files and folders, as Go's `http.FileServer` serves them.

use std::fmt::Write;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use crate::body::{self, Body};
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::conditions::{self, Condition, Part};
use super::content::media_type;
use super::plain;

/// What a file of a log is read in.
const CHUNK: usize = 64 * 1024;
const INDEX: &str = "index.html";

/// Serves what is at a path, which `..` cannot lead out of the folder.
pub(super) async fn serve(root: &Path, path: &str, request: &Parts) -> Response<Body> {
    let path = format!("/{}", path.strip_prefix('/').unwrap_or(path));
    if path.ends_with("/index.html") {
        return redirect("./", request);
    }
    if path.contains('\0') {
        return failed(&io::Error::from(ErrorKind::InvalidInput));
    }
    let (root, headers) = (root.to_owned(), request.headers.clone());
    // One visit to the thread that may block, for all that is not the file's contents.
    let looked = tokio::task::spawn_blocking(move || look(&root, &path, &headers)).await;
    match looked.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(Found::Redirect(to)) => redirect(&to, request),
        Ok(Found::Folder { page, modified }) => folder(page, modified),
        Ok(Found::File(found)) => file(found, request),
        Ok(Found::Unmodified(modified)) => unmodified(modified),
        Err(error) => failed(&error),
    }
}

enum Found {
    Redirect(String),
    Folder { page: String, modified: SystemTime },
    File(FoundFile),
    Unmodified(Option<SystemTime>),
}

struct FoundFile {
    file: File,
    size: u64,
    modified: SystemTime,
    media_type: &'static str,
}

fn look(root: &Path, path: &str, headers: &HeaderMap) -> io::Result<Found> {
    let clean = clean(path);
    let place = root.join(&clean);
    let (file, metadata) = open(&place)?;
    let last = clean.rsplit('/').next().unwrap_or_default();
    if !metadata.is_dir() {
        return match path.ends_with('/') {
            true => Ok(Found::Redirect(format!("../{last}"))),
            false => look_at_file(file, &metadata, last),
        };
    }
    if !path.ends_with('/') {
        // As the client wrote it, which differs if it ended with a dot.
        let last = path.rsplit('/').next().unwrap_or_default();
        return Ok(Found::Redirect(format!("{last}/")));
    }
    if let Ok((file, metadata)) = open(&place.join(INDEX))
        && !metadata.is_dir()
    {
        return look_at_file(file, &metadata, INDEX);
    }
    let modified = metadata.modified()?;
    if conditions::unmodified(headers, modified) == Condition::NotModified {
        return Ok(Found::Unmodified(None));
    }
    Ok(Found::Folder {
        page: page(&place)?,
        modified,
    })
}

fn look_at_file(mut file: File, metadata: &Metadata, name: &str) -> io::Result<Found> {
    if !metadata.is_file() {
        return Err(io::Error::other("neither a file nor a folder"));
    }
    let mut start = Vec::with_capacity(512);
    (&mut file).take(512).read_to_end(&mut start)?;
    Ok(Found::File(FoundFile {
        media_type: media_type(name, &start),
        file,
        size: metadata.len(),
        modified: metadata.modified()?,
    }))
}

/// The path without `.`, `..` and double slashes, relative to the root.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => (),
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // Not blocking: a pipe would wait for a writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// The links to what is in a folder.
fn page(folder: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        names.push((name, is_folder));
    }
    names.sort_unstable();
    let mut page =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for (mut name, is_folder) in names {
        if is_folder {
            name.push('/');
        }
        page.push_str("<a href=\"");
        write_link(&name, &mut page);
        page.push_str("\">");
        write_html(&name, &mut page);
        page.push_str("</a>\n");
    }
    page.push_str("</pre>\n");
    Ok(page)
}

fn write_link(name: &str, out: &mut String) {
    // A colon would end a scheme.
    if name.contains(':') {
        out.push_str("./");
    }
    for byte in name.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) => {
                out.push(char::from(byte))
            }
            // Writing to a string does not fail.
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
}

fn write_html(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

fn file(found: FoundFile, request: &Parts) -> Response<Body> {
    match conditions::check(&request.headers, found.modified) {
        Condition::Serve => (),
        Condition::NotModified => return unmodified(Some(found.modified)),
        Condition::Failed => {
            let mut response = empty(StatusCode::PRECONDITION_FAILED);
            set_modified(&mut response, found.modified);
            return response;
        }
    }
    let part = conditions::part(&request.headers, found.modified, found.size);
    let (status, bytes) = match part {
        Part::All => (StatusCode::OK, 0..found.size),
        Part::Of(bytes) => (StatusCode::PARTIAL_CONTENT, bytes),
        Part::Unsatisfiable(why) => {
            let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, why.to_owned());
            set(
                &mut response,
                header::CONTENT_RANGE,
                &format!("bytes */{}", found.size),
            );
            return response;
        }
    };
    let length = bytes.end - bytes.start;
    let mut file = found.file;
    if let Err(error) = file.seek(SeekFrom::Start(bytes.start)) {
        return failed(&error);
    }
    let body = match request.method == Method::HEAD {
        true => body::full(""),
        // The file may have grown: its length has been promised.
        false => {
            let file = tokio::fs::File::from_std(file).take(length);
            body::streamed(ReaderStream::with_capacity(file, CHUNK))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, found.media_type);
    set(&mut response, header::CONTENT_LENGTH, &length.to_string());
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!(
            "bytes {}-{}/{}",
            bytes.start,
            bytes.end.saturating_sub(1),
            found.size
        );
        set(&mut response, header::CONTENT_RANGE, &range);
    }
    set_modified(&mut response, found.modified);
    response
}

fn folder(page: String, modified: SystemTime) -> Response<Body> {
    let mut response = Response::new(body::full(page));
    set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
    set_modified(&mut response, modified);
    response
}

fn unmodified(modified: Option<SystemTime>) -> Response<Body> {
    let mut response = empty(StatusCode::NOT_MODIFIED);
    if let Some(modified) = modified {
        set_modified(&mut response, modified);
    }
    response
}

fn redirect(to: &str, request: &Parts) -> Response<Body> {
    let mut response = empty(StatusCode::MOVED_PERMANENTLY);
    let mut location = String::new();
    for byte in to.bytes() {
        match byte {
            b'!'..=b'~' => location.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => _ = write!(location, "%{byte:02x}"),
        }
    }
    if let Some(query) = request.uri.query() {
        location.push('?');
        location.push_str(query);
    }
    set(&mut response, header::LOCATION, &location);
    response
}

fn failed(error: &io::Error) -> Response<Body> {
    let (status, message) = match error.kind() {
        // A file on the way to a folder: nothing is there.
        ErrorKind::NotFound | ErrorKind::NotADirectory => (StatusCode::NOT_FOUND, "404 page not found"),
        ErrorKind::PermissionDenied => (StatusCode::FORBIDDEN, "403 Forbidden"),
        _ => {
            tracing::warn!(%error, "cannot serve a log of the node");
            (StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
        }
    };
    plain(status, message.to_owned())
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::full(""));
    *response.status_mut() = status;
    response
}

fn set_modified(response: &mut Response<Body>, modified: SystemTime) {
    if let Some(modified) = conditions::last_modified(modified) {
        set(response, header::LAST_MODIFIED, &modified);
    }
}

/// A value that a header cannot have is left out.
fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
