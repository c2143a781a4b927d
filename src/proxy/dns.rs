//! Looks up addresses at name servers, over UDP, and over TCP if an answer is truncated. A static
//! program cannot use the C library's resolver, which loads modules at run time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use simple_dns::rdata::{A, AAAA, CNAME, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE};

/// How long one server may take to answer.
const QUERY_TIMEOUT: Duration = Duration::from_millis(2500);
/// How often all servers are asked.
const ROUNDS: usize = 2;
/// After this time no further server is asked.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait at least for IPv6 addresses once the IPv4 addresses are known, or vice versa.
const SECOND_ANSWER_TIMEOUT: Duration = Duration::from_millis(250);
const MAX_ALIASES: usize = 16;

const KINDS: [TYPE; 2] = [TYPE::A, TYPE::AAAA];

/// Returns the addresses of a name; an empty list if there is no such name.
pub fn lookup(servers: &[SocketAddr], name: &str) -> io::Result<Vec<IpAddr>> {
    let limit = Instant::now() + LOOKUP_TIMEOUT;
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

/// Asks one server for IPv4 and IPv6 addresses.
fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<IpAddr>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // On a connected socket the kernel drops packets from other addresses.
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
            let left = limit.saturating_duration_since(Instant::now());
            limit = limit.min(Instant::now() + SECOND_ANSWER_TIMEOUT.max(left / 8));
        }
    }
    if answers.iter().all(Option::is_none) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer from the name server {server}")));
    }
    Ok(answers.into_iter().flatten().flatten().collect())
}

/// Unpredictable enough to reject forged answers: a keyed hash whose key is random.
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

/// A server's answer to one question.
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
            Answer::Failed(code) => Err(io::Error::other(format!("the name server answered {code:?}"))),
        }
    }
}

/// Parses an answer; `None` if it is not the answer to this question.
fn read(bytes: &[u8], id: u16, name: &str, kind: TYPE) -> Option<Answer> {
    let packet = Packet::parse(bytes).ok()?;
    let [question] = packet.questions.as_slice() else { return None };
    let is_answer = packet.id() == id
        && packet.has_flags(PacketFlag::RESPONSE)
        && question.qtype == QTYPE::TYPE(kind)
        && text(&question.qname) == name;
    if !is_answer {
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

/// Follows the aliases of the name and ignores records of other names.
fn addresses(packet: &Packet<'_>, name: &str, kind: TYPE) -> Vec<IpAddr> {
    let mut name = name.to_owned();
    for _ in 0..MAX_ALIASES {
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
