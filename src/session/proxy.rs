//! The filter of a session, from before the guest's start to after its end: sandpen's own proxy in threads of the launcher, or a
//! process of its own.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use super::proxy_process::{Opened, ProxyProcess};
use crate::error::{Error, Result};
use crate::host::Host;
#[cfg(target_os = "linux")]
use crate::plan::HANDOVER;
use crate::plan::{Plan, ProxyPlan};
#[cfg(target_os = "linux")]
use crate::proxy::ListenerInbox;
use crate::proxy::{Journal, PROXY_PORT, Policy, Proxy, Resolver, pass_on};
use crate::ui::Ui;

/// Every decision of sandpen's own proxy, in the session's directory.
const LOG: &str = "proxy.log";

/// A filter that stands. Dropping it ends its process, if it has one.
pub struct Filter {
    journal: Arc<Journal>,
    process: Option<ProxyProcess>,
    /// Where a process on the host listens.
    port: u16,
    policy: Policy,
    /// The port, where it is this machine's own.
    listener: Option<TcpListener>,
}

/// Ends the guest.
pub type End = Box<dyn FnOnce() + Send>;

impl Filter {
    fn new(plan: &Plan, ui: Ui) -> Self {
        let log = File::create(plan.session_dir.join(LOG).as_path()).ok();
        let policy = Policy::new(plan.network.allow_hosts.iter().map(|rule| rule.value.clone()).collect());
        Filter { journal: Arc::new(Journal::new(log, ui)), process: None, port: PROXY_PORT, policy, listener: None }
    }

    /// Starts what the host's own tools need. No thread is started.
    #[cfg(target_os = "linux")]
    pub fn for_native(
        host: &Host,
        plan: &Plan,
        ui: Ui,
        interrupted: impl FnMut() -> Option<i32>,
    ) -> Result<Opened<Option<Self>>> {
        let Some(proxy) = &plan.network.proxy else { return Ok(Opened::Ready(None)) };
        let mut filter = Filter::new(plan, ui);
        if let ProxyPlan::Command { words, path } = proxy {
            match ProxyProcess::on_host(host, words, path, &plan.session_dir, ui, interrupted)? {
                Opened::Ready((process, port)) => (filter.process, filter.port) = (Some(process), port),
                Opened::Interrupted(signal) => return Ok(Opened::Interrupted(signal)),
            }
        }
        Ok(Opened::Ready(Some(filter)))
    }

    /// Starts what a guest on this machine's own loopback needs: there the port is the machine's, and only one can have it.
    pub fn for_shared_network(
        host: &Host,
        plan: &Plan,
        ui: Ui,
        interrupted: impl FnMut() -> Option<i32>,
    ) -> Result<Opened<Option<Self>>> {
        let Some(proxy) = &plan.network.proxy else { return Ok(Opened::Ready(None)) };
        let mut filter = Filter::new(plan, ui);
        if let ProxyPlan::Command { words, path } = proxy {
            match ProxyProcess::on_host(host, words, path, &plan.session_dir, ui, interrupted)? {
                Opened::Ready((_, port)) if port != PROXY_PORT => return Err(taken("another proxy listens there")),
                Opened::Ready((process, _)) => filter.process = Some(process),
                Opened::Interrupted(signal) => return Ok(Opened::Interrupted(signal)),
            }
        } else {
            filter.listener = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).map_err(taken)?);
        }
        Ok(Opened::Ready(Some(filter)))
    }

    /// Starts what a container needs, and waits at the counter for its port. `run` makes a command of the engine's client.
    pub fn for_container(
        plan: &Plan,
        sidecar: Option<&crate::launch::Sidecar>,
        run: impl Fn(&[OsString]) -> Result<std::process::Command> + Clone + 'static,
        ui: Ui,
        interrupted: impl FnMut() -> Option<i32>,
    ) -> Result<Opened<Option<Self>>> {
        if plan.network.proxy.is_none() {
            return Ok(Opened::Ready(None));
        }
        let mut filter = Filter::new(plan, ui);
        let Some(sidecar) = sidecar else {
            filter.wait_at_counter(plan)?;
            return Ok(Opened::Ready(Some(filter)));
        };
        ui.verbose(&format!("starting the proxy: {}", crate::ui::shell::shell_words(&sidecar.argv)));
        let command = run(&sidecar.argv)?;
        let remove = sidecar.remove.clone();
        let remove = Box::new(move || {
            for argv in &remove {
                if let Ok(mut command) = run(argv) {
                    let null = std::process::Stdio::null;
                    let _ = command.stdin(null()).stdout(null()).stderr(null()).status();
                }
            }
        });
        match ProxyProcess::in_container(command, &plan.session_dir, ui, interrupted, remove)? {
            Opened::Ready(process) => filter.process = Some(process),
            Opened::Interrupted(signal) => return Ok(Opened::Interrupted(signal)),
        }
        Ok(Opened::Ready(Some(filter)))
    }

    #[cfg(target_os = "linux")]
    fn wait_at_counter(&self, plan: &Plan) -> Result<()> {
        let place = plan.session_dir.join(HANDOVER);
        let counter = ListenerInbox::open(place.as_path())
            .map_err(|error| Error::launch("the proxy's socket cannot be made").cause(error))?;
        let (policy, journal) = (self.policy.clone(), self.journal.clone());
        thread::spawn(move || {
            if let Ok((listener, _guest)) = counter.take() {
                serve(policy, journal, &listener);
            }
        });
        Ok(())
    }

    /// Elsewhere containers are in a virtual machine, and so is their proxy.
    #[cfg(not(target_os = "linux"))]
    fn wait_at_counter(&self, _: &Plan) -> Result<()> {
        Err(Error::launch("a port cannot be handed out of a virtual machine"))
    }

    /// The guest stands: serves its port, if it came this way, and ends the guest when the proxy ends.
    pub fn supervise(&mut self, listener: Option<TcpListener>, end: End) {
        if let Some(process) = &mut self.process {
            let journal = self.journal.clone();
            process.watch(move |line| journal.repeat(line), end);
        }
        let Some(listener) = listener.or(self.listener.take()) else { return };
        let (policy, journal, port) = (self.policy.clone(), self.journal.clone(), self.port);
        let is_process = self.process.is_some();
        thread::spawn(move || match is_process {
            true => pass_on(&listener, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            false => serve(policy, journal, &listener),
        });
    }

    /// The guest has ended: says what was refused, or why the guest was ended.
    pub fn close(self, ui: Ui) -> Result<()> {
        if let Some(line) = self.journal.summary() {
            ui.notice(&line);
        }
        self.process.as_ref().and_then(ProxyProcess::died).map_or(Ok(()), Err)
    }
}

fn taken(why: impl std::fmt::Display) -> Error {
    Error::launch(format!("port {PROXY_PORT} of this machine, where the guest looks for its proxy, cannot be had"))
        .cause(why)
        .hint("end the other sandbox with a filtered network, or run this one in a container")
}

fn serve(policy: Policy, journal: Arc<Journal>, listener: &TcpListener) {
    Arc::new(Proxy { policy, resolver: Resolver::default(), journal }).serve(listener);
}
