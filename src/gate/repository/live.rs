//! Exchanges what changes while the guest is running, once a second, in another thread.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::RepositoryExchange;
use super::saved::FILE;
use crate::process::RepeatedWork;

/// Changes are noticed after at most two seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// An exchange in another thread, once a second.
pub struct LiveExchange {
    exchange: RepeatedWork<RepositoryExchange>,
    /// Another thread, because an exchange may take minutes.
    mark: RepeatedWork<PathBuf>,
}

impl LiveExchange {
    pub fn start(exchange: RepositoryExchange) -> Self {
        let file = exchange.scratch.join(FILE);
        LiveExchange {
            exchange: RepeatedWork::start(INTERVAL, exchange, RepositoryExchange::exchange_if_changed),
            mark: RepeatedWork::start(INTERVAL, file, |file| mark_as_alive(file)),
        }
    }

    /// Ends the threads, after the exchange that they may be busy with.
    pub fn stop(self) -> Option<RepositoryExchange> {
        let exchange = self.exchange.stop();
        self.mark.stop();
        exchange
    }
}

/// The time of this file tells when the launcher was last alive.
fn mark_as_alive(file: &PathBuf) {
    if let Ok(file) = File::options().append(true).open(file) {
        let _ = file.set_modified(std::time::SystemTime::now());
    }
}
