//! The network filter of a session, from before the guest's start to after its end: sandpen's proxy
//! in threads of the launcher, or a proxy in a separate process.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use base64ct::{Base64, Encoding};

use super::end_calls::EndCalls;
use super::gates::Gates;
use super::proxy_process::{ProxyContainer, ProxyError, ProxyProcess};
use crate::error::Result;
use crate::gate::secrets::SecretGate;
use crate::host::Host;
use crate::launch::ContainerLaunch;
#[cfg(target_os = "linux")]
use crate::plan::HANDOVER;
use crate::plan::{Plan, ProxyPlan};
use crate::process::ready::Startup;
#[cfg(target_os = "linux")]
use crate::proxy::ListenerInbox;
use crate::proxy::{Intercept, Journal, PROXY_PORT, Policy, Proxy, Resolver, pass_on};
use crate::secret::Secret;
use crate::ui::Ui;
use crate::ui::shell::shell_words;

/// The file with every decision of sandpen's proxy, in the session's directory.
const LOG: &str = "proxy.log";

/// A filter that is ready to serve. Dropping it ends its process, if it has one.
pub struct Filter {
    journal: Arc<Journal>,
    process: Option<ProxyProcess>,
    /// The port on which a process on the host listens.
    port: u16,
    policy: Policy,
    /// Serves the hosts of keys.
    secrets: Option<Arc<SecretGate>>,
    /// What clients must send, if other processes of this machine can reach the proxy.
    login: Option<Secret>,
    /// The listener, if the guest uses this machine's loopback.
    listener: Option<TcpListener>,
}

/// Ends the guest.
pub type End = Box<dyn FnOnce() + Send>;

impl Filter {
    fn new(plan: &Plan, gates: &Gates, ui: Ui) -> Self {
        let log = File::create(plan.session_dir.join(LOG).as_path()).ok();
        let rules = plan.network.allow_hosts.iter().map(|rule| rule.value.clone()).collect();
        let policy = match plan.network.proxy {
            Some(ProxyPlan::ForSecrets { .. }) => Policy::open(),
            _ => Policy::new(rules),
        };
        let password = plan.secrets.proxy.as_ref().and_then(|proxy| proxy.password.as_ref());
        Filter {
            journal: Arc::new(Journal::new(log, gates.log.clone(), ui)),
            process: None,
            port: PROXY_PORT,
            policy,
            secrets: gates.secrets.clone(),
            login: password.map(login),
            listener: None,
        }
    }

    /// Starts the filter of a guest with a private loopback, whose listener comes with
    /// [`supervise`](Self::supervise). Starts no thread, because the native engine forks
    /// afterwards.
    #[cfg(target_os = "linux")]
    pub fn for_native(
        host: &Host,
        plan: &Plan,
        gates: &Gates,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<Option<Self>>> {
        if plan.network.proxy.is_none() {
            return Ok(Startup::Ready(None));
        }
        let mut started = Self::on_host(host, plan, gates, ui, termination_signal)?;
        if let (Startup::Ready(filter), Some(ProxyPlan::ForSecrets { listen: Some(address) })) =
            (&mut started, &plan.network.proxy)
        {
            let listener = TcpListener::bind((*address, PROXY_PORT));
            filter.listener = Some(listener.map_err(|error| ProxyError::AddressInUse(*address, error))?);
        }
        Ok(started.map(Some))
    }

    /// Starts the filter of a guest that uses this machine's loopback, where only one sandbox at a
    /// time can have the proxy's port.
    pub fn for_shared_network(
        host: &Host,
        plan: &Plan,
        gates: &Gates,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<Option<Self>>> {
        if plan.network.proxy.is_none() {
            return Ok(Startup::Ready(None));
        }
        let mut filter = match Self::on_host(host, plan, gates, ui, termination_signal)? {
            Startup::Ready(filter) => filter,
            Startup::Interrupted(signal) => return Ok(Startup::Interrupted(signal)),
        };
        if filter.process.is_none() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT));
            filter.listener = Some(listener.map_err(ProxyError::PortInUse)?);
        } else if filter.port != PROXY_PORT {
            return Err(ProxyError::PortInUse(io::Error::other("another proxy listens there")).into());
        }
        Ok(Startup::Ready(Some(filter)))
    }

    fn on_host(
        host: &Host,
        plan: &Plan,
        gates: &Gates,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<Self>> {
        let mut filter = Filter::new(plan, gates, ui);
        let Some(ProxyPlan::Command { words, path }) = &plan.network.proxy else { return Ok(Startup::Ready(filter)) };
        let started = ProxyProcess::on_host(host, words, path, &plan.session_dir, ui, termination_signal)?;
        Ok(started.map(|(process, port)| {
            (filter.process, filter.port) = (Some(process), port);
            filter
        }))
    }

    /// Starts the filter of a container: a proxy in a second container, or threads that wait for
    /// the guest to send its listener.
    pub fn for_container(
        plan: &Plan,
        launch: &ContainerLaunch,
        calls: &Arc<EndCalls>,
        gates: &Gates,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<Option<Self>>> {
        if plan.network.proxy.is_none() {
            return Ok(Startup::Ready(None));
        }
        let mut filter = Filter::new(plan, gates, ui);
        let Some(sidecar) = &launch.sidecar else {
            filter.serve_received_listener(plan)?;
            return Ok(Startup::Ready(Some(filter)));
        };
        ui.verbose(&format!("starting the proxy: {}", shell_words(&sidecar.argv)));
        let command = launch.client.command(sidecar.argv.iter().skip(1))?;
        let container = ProxyContainer { calls: calls.clone(), remove: sidecar.remove.clone() };
        let started = ProxyProcess::in_container(command, &plan.session_dir, ui, termination_signal, container)?;
        Ok(started.map(|process| {
            filter.process = Some(process);
            Some(filter)
        }))
    }

    /// Returns the filter of a container on another machine, whose connections come over the channel.
    pub fn for_channel(plan: &Plan, gates: &Gates, ui: Ui) -> Option<Self> {
        plan.network.proxy.as_ref().map(|_| Filter::new(plan, gates, ui))
    }

    #[cfg(target_os = "linux")]
    fn serve_received_listener(&self, plan: &Plan) -> Result<()> {
        let inbox = ListenerInbox::open(plan.session_dir.join(HANDOVER).as_path()).map_err(ProxyError::Socket)?;
        let proxy = self.proxy();
        thread::spawn(move || {
            if let Ok((listener, _guest)) = inbox.take() {
                proxy.serve(&listener);
            }
        });
        Ok(())
    }

    /// Fails, because on other platforms containers are in a virtual machine, and so is their
    /// proxy.
    #[cfg(not(target_os = "linux"))]
    fn serve_received_listener(&self, _: &Plan) -> Result<()> {
        Err(ProxyError::NoHandover.into())
    }

    /// Returns the proxy that serves connections.
    pub fn proxy(&self) -> Arc<Proxy> {
        let intercept = self.secrets.clone().map(|gate| gate as Arc<dyn Intercept>);
        let (policy, journal, login) = (self.policy.clone(), self.journal.clone(), self.login.clone());
        Arc::new(Proxy { policy, resolver: Resolver::default(), journal, intercept, login })
    }

    /// Serves the guest's listener, if there is one, and calls `end` when the proxy's process ends
    /// before the guest.
    pub fn supervise(&mut self, listener: Option<TcpListener>, end: End) {
        if let Some(process) = &mut self.process {
            let journal = self.journal.clone();
            process.watch(move |line| journal.repeat(line), end);
        }
        let Some(listener) = listener.or(self.listener.take()) else { return };
        let (proxy, port) = (self.proxy(), self.port);
        let is_process = self.process.is_some();
        thread::spawn(move || {
            if is_process {
                pass_on(&listener, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            } else {
                proxy.serve(&listener);
            }
        });
    }

    /// Reports, after the guest has ended, what was refused. Fails if the guest was ended because
    /// the proxy had.
    pub fn close(self, ui: Ui) -> Result<()> {
        if let Some(line) = self.journal.summary() {
            ui.notice(&line);
        }
        match self.process.as_ref().and_then(ProxyProcess::death) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Returns the header value with which a client proves that it knows the password.
fn login(password: &Secret) -> Secret {
    let pair = [b"sandpen:", password.reveal().as_encoded_bytes()].concat();
    Secret::new(format!("Basic {}", Base64::encode_string(&pair)))
}
