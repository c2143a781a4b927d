//! Asks name servers. A static program cannot use the C library's resolver, whose parts are loaded at run time; this one asks for
//! addresses over UDP, and over TCP where an answer is cut short.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use simple_dns::rdata::{A, AAAA, CNAME, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE};

/// How long one server may take to answer, how often all are asked, and how long it all may take.
const QUERY_TIMEOUT: Duration = Duration::from_millis(2500);
const ROUNDS: usize = 2;
const LIMIT: Duration = Duration::from_secs(10);
/// How long the second kind of address is waited for once the first is known.
const MIN_GUEST_TIME: Duration = Duration::from_millis(250);
/// The longest chain of aliases.
const MOST_ALIASES: usize = 16;

const KINDS: [TYPE; 2] = [TYPE::A, TYPE::AAAA];

/// The addresses of a name; none if there is no such name.
pub fn lookup(servers: &[SocketAddr], name: &str) -> io::Result<Vec<IpAddr>> {
    let limit = Instant::now() + LIMIT;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no name server is configured");
    for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
        if Instant::now() > limit {
            break;
        }
        match ask(*server, name) {
            Ok(addresses) => return Ok(addresses),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Both kinds of addresses from one server.
fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<IpAddr>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Connected: the kernel drops what comes from anywhere else.
    socket.connect(server)?;
    let ids = [random_id(), random_id()];
    for (id, kind) in ids.into_iter().zip(KINDS) {
        socket.send(&query(id, name, kind)?)?;
    }
    let mut answers: [Option<Vec<IpAddr>>; 2] = [None, None];
    let mut limit = Instant::now() + QUERY_TIMEOUT;
    let mut buffer = [0; 4096];
    while answers.iter().any(Option::is_none) {
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
            Err(error) => return Err(error),
        };
        for index in 0..KINDS.len() {
            let (id, kind) = (ids[index], KINDS[index]);
            let answer = match read(&buffer[..length], id, name, kind) {
                Some(Answer::Truncated) => read_over_tcp(server, id, name, kind)?,
                Some(answer) => answer,
                None => continue,
            };
            answers[index] = Some(answer.addresses()?);
            limit = limit.min(Instant::now() + MIN_GUEST_TIME.max(limit.saturating_duration_since(Instant::now()) / 8));
        }
    }
    if answers.iter().all(Option::is_none) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the name server {server} does not answer")));
    }
    Ok(answers.into_iter().flatten().flatten().collect())
}

/// Unpredictable enough to tell answers from guesses: a keyed hash whose key is random.
fn random_id() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

fn query(id: u16, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(io::Error::other)?;
    packet.questions.push(Question::new(name, QTYPE::TYPE(kind), CLASS::IN.into(), false));
    packet.build_bytes_vec().map_err(io::Error::other)
}

/// What a server said to one question.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Addresses(Vec<IpAddr>),
    Truncated,
    Failed(RCODE),
}

impl Answer {
    fn addresses(self) -> io::Result<Vec<IpAddr>> {
        match self {
            Answer::Addresses(addresses) => Ok(addresses),
            Answer::Truncated => Err(io::ErrorKind::InvalidData.into()),
            Answer::Failed(code) => Err(io::Error::other(format!("the name server says {code:?}"))),
        }
    }
}

/// The answer to this very question; `None` if it is none.
fn read(bytes: &[u8], id: u16, name: &str, kind: TYPE) -> Option<Answer> {
    let packet = Packet::parse(bytes).ok()?;
    let [question] = packet.questions.as_slice() else { return None };
    let is_host_user = packet.id() == id
        && packet.has_flags(PacketFlag::RESPONSE)
        && question.qtype == QTYPE::TYPE(kind)
        && text(&question.qname) == name;
    if !is_host_user {
        return None;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Some(Answer::Truncated);
    }
    match packet.rcode() {
        RCODE::NoError => Some(Answer::Addresses(addresses(&packet, name, kind))),
        RCODE::NameError => Some(Answer::Addresses(Vec::new())),
        code => Some(Answer::Failed(code)),
    }
}

/// The addresses of the name itself, through its aliases; whatever else a server adds is not an answer.
fn addresses(packet: &Packet<'_>, name: &str, kind: TYPE) -> Vec<IpAddr> {
    let mut name = name.to_owned();
    for _ in 0..MOST_ALIASES {
        let of_name: Vec<_> = packet.answers.iter().filter(|record| text(&record.name) == name).collect();
        let found = of_name.iter().filter_map(|record| match (&record.rdata, kind) {
            (RData::A(A { address }), TYPE::A) => Some(IpAddr::V4(Ipv4Addr::from(*address))),
            (RData::AAAA(AAAA { address }), TYPE::AAAA) => Some(IpAddr::V6(Ipv6Addr::from(*address))),
            _ => None,
        });
        let found: Vec<IpAddr> = found.collect();
        let alias = of_name.iter().find_map(|record| match &record.rdata {
            RData::CNAME(CNAME(alias)) => Some(text(alias)),
            _ => None,
        });
        match alias {
            Some(alias) if found.is_empty() => name = alias,
            _ => return found,
        }
    }
    Vec::new()
}

fn text(name: &Name<'_>) -> String {
    name.to_string().to_ascii_lowercase()
}

fn read_over_tcp(server: SocketAddr, id: u16, name: &str, kind: TYPE) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, QUERY_TIMEOUT)?;
    stream.set_read_timeout(Some(QUERY_TIMEOUT))?;
    stream.set_write_timeout(Some(QUERY_TIMEOUT))?;
    let query = query(id, name, kind)?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query.as_slice()].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    read(&answer, id, name, kind).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
