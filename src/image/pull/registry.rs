//! Speaks the registry protocol, version 2.

use std::cell::RefCell;
use std::io::Read;

use serde::Deserialize;

use super::challenge::Challenge;
use super::credentials::{Login, Logins};
use crate::http::{self, HttpError, Request, Response, Url};
use crate::image::content::Digest;
use crate::image::error::ImageError;
use crate::image::manifest::MANIFEST_TYPES;
use crate::image::reference::FullReference;
use crate::tls::{self, TlsError};

const LARGEST_MANIFEST: u64 = 4 << 20;
const LARGEST_TOKEN: u64 = 64 * 1024;
/// Docker's registry has another address than its name.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// A registry, and the repository that is read.
pub struct Registry<'a> {
    client: &'a tls::Client,
    reference: &'a FullReference,
    base: Url,
    login: Option<Login>,
    /// The value of `Authorization`, once the registry has asked for it.
    authorization: RefCell<Option<String>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl<'a> Registry<'a> {
    /// Finds out how the registry is reached, and logs in if it asks for that.
    pub fn connect(
        client: &'a tls::Client,
        reference: &'a FullReference,
        logins: &Logins<'_>,
    ) -> Result<Self, ImageError> {
        let host = if reference.registry == DOCKER_HUB.0 { DOCKER_HUB.1 } else { reference.registry.as_str() };
        let url = |scheme: &str| {
            Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|reason| HttpError::Address { reason })
        };
        let failed = |source| ImageError::Registry { reference: reference.to_string(), source };
        let secure = url("https").map_err(failed)?;
        let (base, answer) = match http::send(client, &secure, Request::default()) {
            // A registry of this machine may do without TLS.
            Err(HttpError::Tls(TlsError::Handshake { .. } | TlsError::Unresolved { .. })) if secure.is_loopback() => {
                let plain = Url { is_secure: false, port: if secure.port == 443 { 80 } else { secure.port }, ..secure };
                let answer = http::send(client, &plain, Request::default()).map_err(failed)?;
                (plain, answer)
            }
            answer => (secure, answer.map_err(failed)?),
        };
        let registry = Registry {
            client,
            reference,
            base,
            login: logins.find(&reference.registry),
            authorization: RefCell::new(None),
        };
        if answer.status == 401 {
            registry.authorize(&answer)?;
        }
        Ok(registry)
    }

    pub fn reference(&self) -> &FullReference {
        self.reference
    }

    pub fn manifest(&self, version: &str) -> Result<Vec<u8>, ImageError> {
        let response = self.get(&format!("manifests/{version}"), &[("Accept", MANIFEST_TYPES)])?;
        self.content(response, LARGEST_MANIFEST)
    }

    /// Reads a small blob and checks its digest.
    pub fn blob(&self, digest: &Digest, most: u64) -> Result<Vec<u8>, ImageError> {
        let response = self.get(&format!("blobs/{digest}"), &[])?;
        let content = self.content(response, most)?;
        if Digest::of(&content) != *digest {
            let reason = format!("the registry sent other content in place of {digest}");
            return Err(ImageError::Content { reference: self.reference.to_string(), reason });
        }
        Ok(content)
    }

    /// Opens a blob at an offset. Returns the offset at which the server begins.
    pub fn open_blob(&self, digest: &Digest, offset: u64) -> Result<(Box<dyn Read>, u64), ImageError> {
        let path = format!("blobs/{digest}");
        if offset == 0 {
            return Ok((self.get(&path, &[])?.body, 0));
        }
        let response = self.get(&path, &[("Range", &format!("bytes={offset}-"))])?;
        let begins_there =
            response.header("content-range").is_some_and(|range| range.starts_with(&format!("bytes {offset}-")));
        match (response.status, begins_there) {
            (206, true) => Ok((response.body, offset)),
            (200, _) => Ok((response.body, 0)),
            // What was downloaded does not fit, so it begins again.
            _ => Ok((self.get(&path, &[])?.body, 0)),
        }
    }

    fn content(&self, response: Response, most: u64) -> Result<Vec<u8>, ImageError> {
        let failed = |source| HttpError::Answer { server: self.base.authority(), source };
        response.content(most).map_err(failed).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: HttpError) -> ImageError {
        ImageError::Registry { reference: self.reference.to_string(), source }
    }

    /// Requests something of the repository; logs in once if the registry asks for that.
    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response, ImageError> {
        let target = format!("/v2/{}/{path}", self.reference.repository);
        let url = Url { target, ..self.base.clone() };
        let send = || {
            let authorization = self.authorization.borrow().clone();
            let request = Request { headers, authorization: authorization.as_deref(), form: None };
            http::send(self.client, &url, request).map_err(|source| self.failed(source))
        };
        let mut response = send()?;
        if response.status == 401 {
            self.authorize(&response)?;
            response = send()?;
        }
        match response.status {
            200 | 206 | 416 => Ok(response),
            status => Err(self.refused(status)),
        }
    }

    fn refused(&self, status: u16) -> ImageError {
        let (reference, registry) = (self.reference.to_string(), self.reference.registry.clone());
        match status {
            401 | 403 => ImageError::Denied { reference, registry, has_login: self.login.is_some() },
            404 => ImageError::NotInRegistry { reference },
            429 => ImageError::TooMany { registry },
            status => ImageError::Status { registry, status },
        }
    }

    fn authorize(&self, response: &Response) -> Result<(), ImageError> {
        let challenge = response.headers("www-authenticate").find_map(Challenge::parse);
        let value = match challenge {
            Some(Challenge::Basic) => self.login.as_ref().and_then(Login::basic).ok_or_else(|| self.refused(401))?,
            Some(Challenge::Bearer { realm, service, scope }) => {
                self.token(&realm, service.as_deref(), scope.as_deref())?
            }
            None => return Err(self.refused(401)),
        };
        *self.authorization.borrow_mut() = Some(value);
        Ok(())
    }

    /// Gets a token from the server that the registry names.
    fn token(&self, realm: &str, service: Option<&str>, scope: Option<&str>) -> Result<String, ImageError> {
        let url = Url::parse(realm).map_err(|reason| self.failed(HttpError::Address { reason }))?;
        // A registry of the network must not send the login to a program of this machine.
        if !(url.is_secure || url.is_loopback() && self.base.is_loopback()) {
            return Err(self.failed(HttpError::Plain { url: url.to_string() }));
        }
        let pull = format!("repository:{}:pull", self.reference.repository);
        let scope = scope.unwrap_or(&pull);
        let mut query = format!("scope={}", escaped(scope));
        if let Some(service) = service {
            query += &format!("&service={}", escaped(service));
        }
        let response = match &self.login {
            Some(Login::Token(token)) => {
                let form =
                    format!("grant_type=refresh_token&client_id=sandpen&refresh_token={}&{query}", escaped(token));
                http::send(self.client, &url, Request { form: Some(&form), ..Request::default() })
            }
            login => {
                let basic = login.as_ref().and_then(Login::basic);
                let separator = if url.target.contains('?') { '&' } else { '?' };
                let url = Url { target: format!("{}{separator}{query}", url.target), ..url };
                http::send(self.client, &url, Request { authorization: basic.as_deref(), ..Request::default() })
            }
        };
        let response = response.map_err(|source| self.failed(source))?;
        if response.status != 200 {
            return Err(self.refused(if response.status == 404 { 401 } else { response.status }));
        }
        let content = self.content(response, LARGEST_TOKEN)?;
        let answer: Option<TokenAnswer> = serde_json::from_slice(&content).ok();
        let token = answer.and_then(|answer| answer.token.or(answer.access_token)).filter(|token| !token.is_empty());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| self.refused(401))
    }
}

/// Escapes a value of a query.
fn escaped(text: &str) -> String {
    let mut result = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => result.push(char::from(byte)),
            _ => result += &format!("%{byte:02X}"),
        }
    }
    result
}
