//! Looks for kubectl, and asks it which cluster and namespace it would use. Speaks to no cluster.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ask;
use crate::facts::Reach;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::{Client, untrusted};

/// Reading a configuration takes kubectl some 50 ms.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(20);
/// The file in the state directory with the id by which this installation knows its pods.
pub const OWNER_FILE: &str = "kubernetes-owner";
const MAX_OWNER: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubernetesFacts {
    pub program: Option<HostPath>,
    /// Whether kubectl has a configuration; the cluster itself is not asked.
    pub reach: Reach,
    pub context: Option<String>,
    /// The namespace of the context.
    pub namespace: Option<String>,
    pub server: Option<String>,
    /// The id of this installation; `None` before its first pod.
    pub owner: Option<String>,
}

impl KubernetesFacts {
    pub fn look(host: &Host, program: Option<HostPath>, path: std::path::PathBuf, context: Option<&str>) -> Self {
        let owner = untrusted::read(host.state_dir().join(OWNER_FILE).as_path(), MAX_OWNER).ok();
        let owner = owner.map(|text| text.trim().to_owned()).filter(|id| is_owner(id));
        let nothing = KubernetesFacts {
            program: program.clone(),
            reach: Reach::NoProgram,
            context: None,
            namespace: None,
            server: None,
            owner,
        };
        if program.is_none() {
            return nothing;
        }
        match View::read(&Client { program, path, machine: None, endpoint: Vec::new() }, context) {
            Ok(view) => {
                let named = view.contexts.into_iter().next();
                let server = view.clusters.into_iter().next().map(|cluster| cluster.cluster.server);
                let (context, used) = named.map(|named| (named.name, named.context)).unzip();
                let namespace = used.and_then(|used| used.namespace).filter(|name| !name.is_empty());
                KubernetesFacts { reach: Reach::Answers, context, namespace, server, ..nothing }
            }
            Err(error) => KubernetesFacts { reach: Reach::Silent(error), ..nothing },
        }
    }
}

/// Tells whether a text can be the value of a label that selects pods.
fn is_owner(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What `kubectl config view --minify` prints. It leaves out keys and certificates.
#[derive(Deserialize)]
struct View {
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    server: String,
}

impl View {
    fn read(client: &Client, context: Option<&str>) -> Result<Self, String> {
        let context = context.map(|context| format!("--context={context}"));
        let arguments = ["config", "view", "--minify", "--output=json"];
        let arguments: Vec<&str> = arguments.into_iter().chain(context.as_deref()).collect();
        let mut command = ask::question(client, &arguments).ok_or("kubectl cannot be started")?;
        let output = ask::within(&mut command, CONFIG_TIMEOUT).ok_or("kubectl does not answer")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().next().unwrap_or("it fails without a message");
            return Err(line.trim_start_matches("error: ").to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("its configuration cannot be read: {error}"))
    }
}
