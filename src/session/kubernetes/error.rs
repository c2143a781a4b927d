//! Why a pod could not be started, or was lost.

use std::io;

use crate::error::{Diagnostic, Kind};

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("kubectl is not installed: there is no `kubectl` on PATH")]
    NoClient,
    #[error("cannot start kubectl")]
    Start(#[source] io::Error),
    #[error("the cluster does not answer within {seconds} s")]
    Silent { seconds: u64 },
    #[error("the cluster cannot be reached")]
    Unreachable { message: String, server: Option<String> },
    #[error("the cluster does not know who you are")]
    Unauthorized { message: String },
    #[error("you may not {verb} {resource} in the namespace `{namespace}`")]
    Forbidden { verb: &'static str, resource: &'static str, namespace: String, message: String },
    #[error("the cluster refuses the pod in the namespace `{namespace}`")]
    Refused { namespace: String, message: String },
    #[error("there is no namespace `{namespace}` in the cluster")]
    NoNamespace { namespace: String },
    #[error("the image `{image}` cannot be had in the cluster")]
    Image { image: String, reason: String, message: String },
    #[error("no node of the cluster takes the pod")]
    Unschedulable { message: String },
    #[error("the cluster cannot start the pod: {reason}")]
    NotStarted { reason: String, message: String },
    #[error("the pod did not start within {seconds} s")]
    Late { seconds: u64, events: Vec<String> },
    #[error("the pod was deleted, or ended, while the sandbox ran")]
    Ended { reason: String },
    #[error("the connection to the sandbox was lost")]
    Lost { message: String, pod: String, namespace: String },
    #[error("what the pod sends is not understood")]
    Protocol { message: String },
    #[error("the pod of the sandbox does not run yet")]
    NotStartedYet,
    #[error("cannot write `{path}` for the session")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl Diagnostic for ClusterError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Unreachable { message, .. }
            | Self::Unauthorized { message }
            | Self::Forbidden { message, .. }
            | Self::Refused { message, .. }
            | Self::Image { message, .. }
            | Self::Unschedulable { message }
            | Self::NotStarted { message, .. }
            | Self::Protocol { message }
            | Self::Lost { message, .. } => vec![message.clone()],
            Self::Ended { reason } => vec![reason.clone()],
            Self::Late { events, .. } => events.clone(),
            Self::Start(source) => vec![source.to_string()],
            Self::Write { source, .. } => vec![source.to_string()],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NoClient => vec!["install kubectl: https://kubernetes.io/docs/tasks/tools".into()],
            Self::Silent { .. } | Self::Unreachable { .. } => {
                vec!["see whether `kubectl get --raw /readyz` answers, or choose another cluster with `--context`".into()]
            }
            Self::Unauthorized { .. } => vec!["log in again; `kubectl auth can-i create pods` must answer `yes`".into()],
            Self::Forbidden { verb, resource, namespace, .. } => vec![
                format!("ask for the right that `kubectl auth can-i {verb} {resource} --namespace {namespace}` denies"),
                "sandpen needs: create, get, list, watch and delete of pods, create and get of pods/exec, list of events"
                    .into(),
            ],
            Self::Refused { .. } => vec!["`sandpen explain` shows the pod".into()],
            Self::NoNamespace { namespace } => {
                vec![format!("create it with `kubectl create namespace {namespace}`, or choose another with `--namespace`")]
            }
            Self::Image { image, .. } => vec![format!(
                "push `{image}` to a registry that the cluster reaches, or name a login in `kubernetes.imagePullSecrets`"
            )],
            Self::Unschedulable { .. } => vec![
                "ask for less with `--cpus` and `--memory`, or see `kubernetes.nodeSelector` and `kubernetes.tolerations`"
                    .into(),
            ],
            Self::Lost { pod, namespace, .. } => vec![
                "the command inside ends within 45 s; its pod keeps the work for an hour if it did not come back".into(),
                format!("see what is left with `kubectl --namespace {namespace} get pod {pod}`"),
            ],
            _ => Vec::new(),
        }
    }
}
