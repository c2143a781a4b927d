//! Decides which addresses belong to the public internet. All others (loopback, private,
//! link-local, metadata services, carrier-grade NAT, reserved, and those that embed another
//! address) can be reached only if the allow-list contains the address itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Follows IANA's registries of special-purpose addresses.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // Multicast, reserved, broadcast.
        || a >= 224
        // Carrier-grade NAT, which some clouds use for metadata services.
        || (a == 100 && b & 0b1100_0000 == 64)
        // Protocol assignments; 6to4 relays; benchmarks.
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && b & 0xfe == 18)
        // A metadata service with an address that looks public.
        || address == Ipv4Addr::new(168, 63, 129, 16))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Global unicast is 2000::/3; everything else is local, special, or unassigned.
    a & 0xe000 == 0x2000
        // 2001::/23 is for protocols (Teredo among them), 2001:db8::/32 and 3fff::/20 for
        // documentation.
        && !(a == 0x2001 && (b < 0x200 || b == 0xdb8))
        && !(a == 0x3fff && b < 0x1000)
        // 6to4 embeds an IPv4 address.
        && a != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.254",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.251",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(text.parse().is_ok_and(|address| !is_public(address)), "{text}");
        }
    }

    #[test]
    fn internet_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2a00::1",
        ] {
            assert!(text.parse().is_ok_and(is_public), "{text}");
        }
    }
}
