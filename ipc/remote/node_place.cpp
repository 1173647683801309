#include "ipc/remote/node_place.hpp"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace paceline::remote {
namespace {

/// The numeric text of an address without its port; empty if it is neither IPv4 nor IPv6.
std::string numeric(const sockaddr* address) {
    if (address == nullptr) return {};
    const socklen_t length = address->sa_family == AF_INET    ? sizeof(sockaddr_in)
                             : address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                              : 0;
    std::array<char, NI_MAXHOST> text{};
    if (length == 0 ||
        ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        return {};
    }
    return text.data();
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Interfaces interfaces() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) all = nullptr;
    return {all, &::freeifaddrs};
}

bool is_wildcard(const std::string& address) {
    in6_addr six{};
    return address == "0.0.0.0" ||
           (::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six));
}

bool is_loopback(const std::string& address) {
    in_addr four{};
    in6_addr six{};
    if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24U == 127;
    return ::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/// Whether `host` says by itself that it is of no use to other machines.
bool names_loopback(const std::string& host) {
    return host == "localhost" || is_loopback(host);
}

/// "10.0.0.1 (eth0), fd00::1 (eth1)": what other machines can reach.
std::string reachable_addresses() {
    std::string text;
    const Interfaces all = interfaces();
    for (const ifaddrs* item = all.get(); item != nullptr; item = item->ifa_next) {
        const std::string address = numeric(item->ifa_addr);
        if (address.empty() || is_loopback(address)) continue;
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", address, item->ifa_name);
    }
    return text.empty() ? "it has none besides" : text;
}

/// The first address that the name or number `host` means: those that other machines reach before
/// loopback ones, then IPv4 first.
Result<std::string> look_up(const std::string& host) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int problem = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{found, &::freeaddrinfo};
    if (problem != 0) {
        return Error{Errc::BadArgument,
                     fmt::format("'{}' is neither an address nor an interface of this machine nor "
                                 "a known name ({})",
                                 host, ::gai_strerror(problem))};
    }
    std::string best;
    int best_rank = 0;
    for (const addrinfo* item = found; item != nullptr; item = item->ai_next) {
        const std::string text = numeric(item->ai_addr);
        if (text.empty()) continue;
        const int rank = 1 + (is_loopback(text) ? 0 : 2) + (item->ai_family == AF_INET ? 1 : 0);
        if (rank <= best_rank) continue;
        best = text;
        best_rank = rank;
    }
    if (!best.empty()) return best;
    return Error{Errc::BadArgument, fmt::format("the name '{}' has no address", host)};
}

}  // namespace

Result<NodePlace> NodePlace::parse(std::string_view text) {
    const auto wrong = [text](const char* why) {
        return Error{Errc::BadArgument,
                     fmt::format("'{}' is no HOST:PORT: {}; for example 10.0.0.1:47600, eth1:47600 "
                                 "or [fd00::1]:47600",
                                 text, why)};
    };
    std::string_view host;
    std::string_view port;
    if (!text.empty() && text.front() == '[') {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos) return wrong("the ']' is missing");
        host = text.substr(1, end - 1);
        port = text.substr(end + 1);
        if (port.empty() || port.front() != ':') return wrong("the port is missing");
        port.remove_prefix(1);
    } else {
        const std::size_t colon = text.find(':');
        if (colon == std::string_view::npos) return wrong("the port is missing");
        if (text.find(':', colon + 1) != std::string_view::npos) {
            return wrong("an IPv6 address stands in brackets");
        }
        host = text.substr(0, colon);
        port = text.substr(colon + 1);
    }
    if (host.empty()) return wrong("the host is missing");
    if (host.find('\0') != std::string_view::npos) return wrong("the host has a byte 0");
    NodePlace place{std::string{host}, 0};
    const char* end = port.data() + port.size();
    const auto [last, problem] = std::from_chars(port.data(), end, place.port);
    if (port.empty() || problem != std::errc{} || last != end) {
        return wrong("the port is not a number up to 65535");
    }
    return place;
}

std::string NodePlace::text() const {
    const bool six = host.find(':') != std::string::npos;
    return six ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<std::string> find_own_address(const std::string& host) {
    const Interfaces all = interfaces();
    bool known = false;
    std::string six;
    for (const ifaddrs* item = all.get(); item != nullptr; item = item->ifa_next) {
        if (host != item->ifa_name) continue;
        known = true;
        const std::string text = numeric(item->ifa_addr);
        if (text.empty()) continue;
        if (item->ifa_addr->sa_family == AF_INET) return text;
        if (six.empty()) six = text;
    }
    if (!six.empty()) return six;
    if (known) {
        return Error{Errc::BadArgument, fmt::format("the interface {} has no address", host)};
    }
    Result<std::string> address = look_up(host);
    if (address.ok() && is_wildcard(address.value())) {
        return Error{Errc::BadArgument,
                     fmt::format("{} means all interfaces: name one address or one interface, so "
                                 "that no other network is listened to",
                                 host)};
    }
    if (address.ok() && is_loopback(address.value()) && !names_loopback(host)) {
        return Error{Errc::BadArgument,
                     fmt::format("'{}' means {} on this machine, which other machines cannot "
                                 "reach; give an address or an interface of it instead: {}",
                                 host, address.value(), reachable_addresses())};
    }
    return address;
}

std::string interface_of(const std::string& address) {
    const Interfaces all = interfaces();
    for (const ifaddrs* item = all.get(); item != nullptr; item = item->ifa_next) {
        if (numeric(item->ifa_addr) == address) return item->ifa_name;
    }
    return {};
}

}  // namespace paceline::remote
