//! Serves pushes: reads the list of ref updates, decides each by the rules, and lets the pack through
//! only if all of them are allowed.

use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ChildStdin;
use std::time::Duration;

use super::advertisement::Advertisement;
use super::commands::CommandList;
use super::decision::{self, Decision, DefaultBranch};
use super::process::TransportProcess;
use super::quarantine::{Quarantine, Received};
use super::record::PushRecord;
use super::ssh::Version;
use super::transport::Transport;
use super::upload_pack::ended;
use super::{OK, Service, http, relay, report, ssh};
use crate::config::value::{PushRule, short_name};
use crate::event_log::Verdict;
use crate::plan::push::{HttpRemote, RemoteUrl};
use crate::process::copy_bytes;

/// A hook before the push may take long; a guest that never goes on must end some day.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(3600);

/// A server that has sent its list of refs.
enum Server<'a> {
    Ssh(Request),
    Http(http::Refs, &'a HttpRemote),
}

/// A connection to which the updates and the pack are written.
struct Request {
    process: TransportProcess,
    stdin: ChildStdin,
    answer: BufReader<std::process::ChildStdout>,
    /// Whether the server knows the end of a pack only by the end of the stream.
    needs_end: bool,
}

impl Server<'_> {
    fn request(self, transport: &Transport) -> Result<Request, String> {
        match self {
            Server::Ssh(request) => Ok(request),
            Server::Http(refs, remote) => {
                let (process, streams) = refs.start_post(transport, remote, Service::ReceivePack, Version::Zero)?;
                let answer = BufReader::new(streams.stdout);
                Ok(Request { process, stdin: streams.stdin, answer, needs_end: true })
            }
        }
    }
}

pub fn serve(transport: &Transport, number: usize, guest: &mut UnixStream) -> Result<(), String> {
    let (server, advertised) = match &transport.remote(number)?.url {
        RemoteUrl::Ssh(remote) => {
            let (process, streams) = ssh::start(transport, remote, Service::ReceivePack, Version::Zero)?;
            let mut answer = BufReader::new(streams.stdout);
            let is_open = io::BufRead::fill_buf(&mut answer).is_ok_and(|bytes| !bytes.is_empty());
            if !is_open {
                drop((answer, streams.stdin));
                return Err(ended(process.finish().1));
            }
            guest.write_all(OK).map_err(gone)?;
            let advertised = Advertisement::relay(&mut answer, guest).map_err(unreadable)?;
            (Server::Ssh(Request { process, stdin: streams.stdin, answer, needs_end: false }), advertised)
        }
        RemoteUrl::Http(remote) => {
            let refs = http::Refs::ask(transport, remote, Service::ReceivePack, Version::Zero)?;
            guest.write_all(OK).map_err(gone)?;
            let advertised = Advertisement::relay(&mut refs.bytes.as_slice(), guest).map_err(unreadable)?;
            (Server::Http(refs, remote), advertised)
        }
    };
    Push { transport, number, advertised }.serve(server, guest)
}

struct Push<'a> {
    transport: &'a Transport,
    number: usize,
    advertised: Advertisement,
}

impl Push<'_> {
    fn serve(&self, server: Server, guest: &mut UnixStream) -> Result<(), String> {
        guest.set_read_timeout(Some(COMMANDS_TIMEOUT)).map_err(gone)?;
        let commands =
            CommandList::read(guest, &self.advertised).map_err(|error| format!("the guest's updates: {error}"))?;
        guest.set_read_timeout(None).map_err(gone)?;
        if commands.updates.is_empty() {
            return Ok(());
        }
        let decisions = self.decide(&commands);
        if decisions.iter().any(|decision| matches!(decision, Decision::Refused(_))) {
            drop(server);
            let reasons = decisions.into_iter().map(|decision| match decision {
                Decision::Refused(reason) => Some(reason),
                Decision::Allowed | Decision::IfFastForward => None,
            });
            return self.refuse(guest, &commands, reasons.collect());
        }
        let mut request = match server.request(self.transport) {
            Ok(request) => request,
            Err(reason) => return self.fail(guest, &commands, &reason),
        };
        // A server that does not read says why.
        let _ = commands.write(&mut request.stdin);
        let is_checked = request.needs_end || decisions.contains(&Decision::IfFastForward);
        if !commands.has_pack() {
            let Request { process, stdin, answer, .. } = request;
            drop(stdin);
            return self.answer(guest, &commands, process, answer);
        }
        if !is_checked {
            return self.stream(guest, &commands, request);
        }
        match self.check(guest, &commands, &decisions, &mut request) {
            Ok(()) => {
                let Request { process, stdin, answer, needs_end } = request;
                let stdin = Some(stdin).filter(|_| !needs_end);
                let done = self.answer(guest, &commands, process, answer);
                drop(stdin);
                done
            }
            Err(reasons) => {
                drop(request);
                self.refuse(guest, &commands, reasons)
            }
        }
    }

    /// Decides every update. If the default branch is needed and unknown, its rule is not met.
    fn decide(&self, commands: &CommandList) -> Vec<Decision> {
        let rules: Vec<PushRule> = self.transport.plan.rules.iter().map(|rule| rule.value.clone()).collect();
        let decide = |update| {
            let default_branch = if decision::depends_on_default_branch(&rules, update) {
                self.transport.default_branch(self.number)
            } else {
                Ok(DefaultBranch::None)
            };
            match default_branch {
                Ok(default_branch) => decision::decide(&rules, update, &self.advertised, &default_branch),
                Err(reason) => Decision::Refused(reason),
            }
        };
        commands.updates.iter().map(decide).collect()
    }

    /// Passes the pack on, all but its end; then checks the updates, and passes on the end.
    fn check(
        &self,
        guest: &mut UnixStream,
        commands: &CommandList,
        decisions: &[Decision],
        request: &mut Request,
    ) -> Result<(), Vec<Option<String>>> {
        let count = commands.updates.len();
        let all = |reason: String| vec![Some(reason); count];
        let Transport { git, plan, .. } = self.transport;
        let quarantine = Quarantine::create(git, plan, self.advertised.id_len, &commands.shallow)
            .map_err(|error| all(format!("the push cannot be checked: {error}")))?;
        let checked: Vec<_> = commands.updates.iter().zip(decisions).collect();
        let refuse = |reason: &dyn Fn(&str) -> Option<String>| -> Result<(), Vec<Option<String>>> {
            let reasons: Vec<Option<String>> = checked
                .iter()
                .map(|(update, decision)| match decision {
                    Decision::IfFastForward => reason(&update.name),
                    _ => None,
                })
                .collect();
            if reasons.iter().all(Option::is_none) { Ok(()) } else { Err(reasons) }
        };
        let update_of = |name: &str| commands.updates.iter().find(|update| update.name == name);
        if plan.has_shared_objects {
            // The guest could have changed the parents of a commit.
            refuse(&|name| {
                let short = short_name(name);
                Some(format!("fast-forwards are not verified with --git shared: allow --push '+{short}'"))
            })?;
        }
        refuse(&|name| {
            let update = update_of(name)?;
            let short = short_name(name);
            let unknown = || {
                format!(
                    "its present commit is not known on the host: fetch it in the project first, or allow --push '+{short}'"
                )
            };
            (!quarantine.knows(&update.old)).then(unknown)
        })?;
        let received = quarantine.receive(guest, &mut request.stdin, &self.transport.programs);
        let held = match received.map_err(|error| all(format!("the pack cannot be read: {error}")))? {
            Received::Complete(held) => held,
            Received::ServerClosed => return Ok(()),
        };
        refuse(&|name| match quarantine.is_fast_forward(update_of(name)?) {
            Ok(true) => None,
            Ok(false) => {
                let short = short_name(name);
                Some(format!("not a fast-forward: merge first, or allow --push '+{short}'"))
            }
            Err(error) => Some(format!("whether it is a fast-forward cannot be checked: {error}")),
        })?;
        // A server that has closed the connection says why.
        let _ = held.send(&mut request.stdin);
        Ok(())
    }

    /// Passes everything on.
    fn stream(&self, guest: &mut UnixStream, commands: &CommandList, request: Request) -> Result<(), String> {
        let Request { process, stdin, answer, .. } = request;
        let reader = guest.try_clone().map_err(gone)?;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut stdin = stdin;
                let _ = copy_bytes(&mut &reader, &mut stdin);
            });
            self.answer(guest, commands, process, answer)
        })
    }

    /// Passes the server's answer on. A server without one has refused everything.
    fn answer(
        &self,
        guest: &mut UnixStream,
        commands: &CommandList,
        process: TransportProcess,
        mut answer: impl Read,
    ) -> Result<(), String> {
        let mut first = vec![0; 4096];
        let count = answer.read(&mut first).unwrap_or(0);
        if count == 0 && commands.wants_report() {
            let reason = ended(process.finish().1);
            return self.fail(guest, commands, &reason);
        }
        self.record(commands, Verdict::Allowed, |_| "by the rules".into());
        let _ = guest.write_all(&first[..count]).and_then(|()| copy_bytes(&mut answer, guest));
        let _ = guest.shutdown(Shutdown::Both);
        process.finish();
        Ok(())
    }

    fn refuse(
        &self,
        guest: &mut UnixStream,
        commands: &CommandList,
        reasons: Vec<Option<String>>,
    ) -> Result<(), String> {
        self.record(commands, Verdict::Refused, |index| {
            reasons[index].clone().unwrap_or_else(|| "another ref was refused".into())
        });
        let _ = report::refuse(guest, commands, &reasons);
        relay::drain(guest);
        Ok(())
    }

    fn fail(&self, guest: &mut UnixStream, commands: &CommandList, reason: &str) -> Result<(), String> {
        self.record(commands, Verdict::Failed, |_| reason.to_owned());
        let _ = report::refuse(guest, commands, &vec![Some(reason.to_owned()); commands.updates.len()]);
        relay::drain(guest);
        Ok(())
    }

    fn record(&self, commands: &CommandList, verdict: Verdict, reason: impl Fn(usize) -> String) {
        let remote = self.transport.remote(self.number).map_or_else(|_| String::new(), |remote| remote.name.clone());
        for (index, update) in commands.updates.iter().enumerate() {
            let what = format!("{} of {remote}", update.name);
            self.transport.recorder.record(&PushRecord { verdict, what, reason: reason(index) });
        }
    }
}

fn gone(error: io::Error) -> String {
    format!("the guest's connection: {error}")
}

fn unreadable(error: io::Error) -> String {
    format!("the server's refs cannot be read: {error}")
}
