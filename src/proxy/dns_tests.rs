use std::net::TcpListener;
use std::thread;

use proptest::prelude::*;
use simple_dns::ResourceRecord;

use super::*;

const NAME: &str = "a.example";

fn record<'a>(name: &'a str, data: RData<'a>) -> ResourceRecord<'a> {
    ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, 60, data)
}

fn v4(address: [u8; 4]) -> RData<'static> {
    RData::A(A { address: Ipv4Addr::from(address).to_bits() })
}

fn alias(name: &str) -> RData<'_> {
    RData::CNAME(CNAME(Name::new_unchecked(name)))
}

fn reply(id: u16, asked: &str, records: Vec<ResourceRecord<'_>>) -> Vec<u8> {
    let mut packet = Packet::new_reply(id);
    packet.questions.push(Question::new(Name::new_unchecked(asked), QTYPE::TYPE(TYPE::A), CLASS::IN.into(), false));
    packet.answers = records;
    packet.build_bytes_vec().expect("a packet")
}

fn found(bytes: &[u8]) -> Option<Vec<IpAddr>> {
    read(bytes, 7, NAME, TYPE::A).and_then(|answer| answer.addresses().ok())
}

#[test]
fn aliases_are_followed_and_other_names_ignored() {
    let records = vec![
        record("stranger.example", v4([6, 6, 6, 6])),
        record(NAME, alias("b.example")),
        record("B.example", alias("c.example")),
        record("c.example", v4([1, 2, 3, 4])),
    ];
    assert_eq!(found(&reply(7, NAME, records)), Some(vec![IpAddr::from([1, 2, 3, 4])]));
}

#[test]
fn aliases_in_a_circle_end() {
    let records = vec![record(NAME, alias("b.example")), record("b.example", alias(NAME))];
    assert_eq!(found(&reply(7, NAME, records)), Some(Vec::new()));
}

#[test]
fn an_answer_to_another_question_is_none() {
    assert_eq!(found(&reply(8, NAME, vec![record(NAME, v4([1, 2, 3, 4]))])), None);
    assert_eq!(found(&reply(7, "b.example", vec![record("b.example", v4([1, 2, 3, 4]))])), None);
}

/// Starts a name server; `answer` turns the question's id and kind into a reply.
fn server(answer: impl Fn(u16, TYPE) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    let address = socket.local_addr().expect("address");
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let query = Packet::parse(&buffer[..length]).expect("a query");
            let kind = if query.questions[0].qtype == QTYPE::TYPE(TYPE::A) { TYPE::A } else { TYPE::AAAA };
            let _ = socket.send_to(&answer(query.id(), kind), from);
        }
    });
    address
}

fn reply_of(id: u16, kind: TYPE, flags: PacketFlag, records: Vec<ResourceRecord<'_>>) -> Vec<u8> {
    let mut packet = Packet::new_reply(id);
    packet.set_flags(flags);
    packet.questions.push(Question::new(Name::new_unchecked(NAME), QTYPE::TYPE(kind), CLASS::IN.into(), false));
    packet.answers = records;
    packet.build_bytes_vec().expect("a packet")
}

#[test]
fn both_kinds_of_addresses_are_asked_for() {
    let six = Ipv6Addr::new(0x2606, 0, 0, 0, 0, 0, 0, 1);
    let address = server(move |id, kind| {
        let data = if kind == TYPE::A { v4([1, 2, 3, 4]) } else { RData::AAAA(AAAA { address: six.to_bits() }) };
        reply_of(id, kind, PacketFlag::empty(), vec![record(NAME, data)])
    });
    assert_eq!(lookup(&[address], NAME).ok(), Some(vec![IpAddr::from([1, 2, 3, 4]), six.into()]));
}

#[test]
fn a_server_that_is_silent_about_ipv6_delays_little() {
    let address = server(|id, kind| match kind {
        TYPE::A => reply_of(id, kind, PacketFlag::empty(), vec![record(NAME, v4([1, 2, 3, 4]))]),
        _ => b"nonsense".to_vec(),
    });
    let begun = Instant::now();
    assert_eq!(lookup(&[address], NAME).ok(), Some(vec![IpAddr::from([1, 2, 3, 4])]));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn the_next_server_is_asked_when_one_fails() {
    let failing = server(|id, kind| {
        let mut packet = Packet::new_reply(id);
        *packet.rcode_mut() = RCODE::ServerFailure;
        packet.questions.push(Question::new(Name::new_unchecked(NAME), QTYPE::TYPE(kind), CLASS::IN.into(), false));
        packet.build_bytes_vec().expect("a packet")
    });
    let good = server(|id, kind| {
        let records = if kind == TYPE::A { vec![record(NAME, v4([1, 2, 3, 4]))] } else { vec![] };
        reply_of(id, kind, PacketFlag::empty(), records)
    });
    assert_eq!(lookup(&[failing, good], NAME).ok(), Some(vec![IpAddr::from([1, 2, 3, 4])]));
    assert!(lookup(&[failing], NAME).is_err());
    assert!(lookup(&[], NAME).is_err());
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let address = listener.local_addr().expect("address");
    let socket = UdpSocket::bind(address).expect("the same port over UDP");
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let query = Packet::parse(&buffer[..length]).expect("a query");
            let kind = if query.questions[0].qtype == QTYPE::TYPE(TYPE::A) { TYPE::A } else { TYPE::AAAA };
            let flags = if kind == TYPE::A { PacketFlag::TRUNCATION } else { PacketFlag::empty() };
            let _ = socket.send_to(&reply_of(query.id(), kind, flags, vec![]), from);
        }
    });
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            stream.read_exact(&mut length).expect("length");
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).expect("query");
            let id = Packet::parse(&query).expect("a query").id();
            let answer = reply_of(id, TYPE::A, PacketFlag::empty(), vec![record(NAME, v4([4, 3, 2, 1]))]);
            let length = u16::try_from(answer.len()).expect("short");
            stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat()).expect("written");
        }
    });
    assert_eq!(lookup(&[address], NAME).ok(), Some(vec![IpAddr::from([4, 3, 2, 1])]));
}

proptest! {
    #[test]
    fn no_packet_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, 7, NAME, TYPE::A);
    }
}
