//! `sandpen diff --web`: serves the review of a copy as a page on this machine, until the copy is discarded
//! or the command is interrupted.

mod access;
mod api;
mod page;
mod server;

use std::net::{Ipv4Addr, TcpListener};

use super::WorkspaceCommandError;
use super::find::{Found, TreePath};
use crate::error::Result;
use crate::host::Host;
use crate::process::Outcome;
use crate::ui::Ui;
use access::Access;
use api::Api;
use server::serve;

pub fn run(host: Host, found: Found, paths: Vec<TreePath>, shows_ignored: bool, ui: Ui) -> Result<Outcome> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(WorkspaceCommandError::Serve)?;
    let port = listener.local_addr().map_err(WorkspaceCommandError::Serve)?.port();
    let access = Access::new(port)?;
    ui.data(&format!("{}\n", access.address()))?;
    ui.notice("open this address in a browser; it works once. Ctrl-C ends");
    let api = Api::new(host, found, paths, shows_ignored, access, ui);
    serve(&listener, &api).map_err(WorkspaceCommandError::Serve)?;
    Ok(Outcome::Exited(0))
}
