//! Reads the refs and HEAD of the host's repository: from its files, or by the host's Git if they are
//! in a reftable.

use super::base::parse_list;
use super::exchange::{GitDirExchange, WorkingTree};
use super::host_git::{GitResult, HostGit};
use super::refs::{self, Head, Refs};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

impl GitDirExchange {
    /// Reads the refs of the host's repository.
    pub fn read_host(&self, git: &HostGit) -> GitResult<Refs> {
        if !self.dir.is_reftable {
            return Ok(refs::read_refs(&UntrustedDir::open(&self.dir.host)?)?);
        }
        let format = "--format=%(if)%(symref)%(then)%(else)%(objectname) %(refname)%(end)";
        let list = git.call(&self.dir.host, &["for-each-ref", format]).run()?;
        Ok(Refs { ids: parse_list(&String::from_utf8_lossy(&list)), ..Refs::default() })
    }

    /// Reads the host's HEAD of a working tree.
    pub fn host_head(&self, git: &HostGit, tree: &WorkingTree) -> GitResult<Option<Head>> {
        if !self.dir.is_reftable {
            return Ok(refs::read_head(&UntrustedDir::open(&tree.host)?)?);
        }
        let name = git.call(&tree.host, &["symbolic-ref", "--quiet", "HEAD"]).run();
        let text = |output: Vec<u8>| String::from_utf8_lossy(&output).trim_end().to_owned();
        Ok(match name {
            Ok(name) => Some(Head::Branch(text(name))),
            Err(_) => ObjectId::parse(&text(git.call(&tree.host, &["rev-parse", "--verify", "HEAD"]).run()?))
                .map(Head::Detached),
        })
    }
}
