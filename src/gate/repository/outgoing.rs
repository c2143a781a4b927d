//! Passes the host's Git, the objects that the host has taken and the report to each step that brings
//! changes out.

use super::exchange::Moment;
use super::host_git::HostGit;
use super::refs::Refs;
use super::report::Report;
use super::transfer::Taken;

/// The context of the steps of one exchange that bring changes out.
pub struct Outgoing<'a> {
    pub git: &'a HostGit,
    pub moment: Moment,
    /// The refs that the guest was given, or that came out of it before.
    pub base: &'a Refs,
    /// The guest's objects that the host has now.
    pub taken: &'a Taken,
    pub report: &'a mut Report,
}

impl Outgoing<'_> {
    pub fn is_last(&self) -> bool {
        self.moment == Moment::Ended
    }

    /// Reports a problem, unless the guest is running: then a later exchange may succeed.
    pub fn problem_at_end(&mut self, problem: impl Into<String>) {
        if self.is_last() {
            self.report.problems.push(problem.into());
        }
    }

    /// Reports a problem by which objects stay inside, unless the guest is running.
    pub fn refuse_at_end(&mut self, problem: impl Into<String>) {
        if self.is_last() {
            self.report.refuse(problem);
        }
    }

    /// Reports what stays inside, unless the guest is running.
    pub fn keep_at_end(&mut self, what: impl Into<String>) {
        if self.is_last() {
            self.report.keep(what);
        }
    }
}
