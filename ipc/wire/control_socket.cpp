#include "ipc/wire/control_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kFilesPerCall = 253;  // the kernel's SCM_MAX_FD
constexpr std::size_t kPortionsMax = (kControlFilesMax + kFilesPerCall - 1) / kFilesPerCall;
static_assert(kPortionsMax <= sizeof(ControlFrameHeader), "each portion rides on a byte");

Error failed(const char* call) {
    return {Errc::System,
            std::string{call} + " on a control socket failed: " + std::strerror(errno)};
}

Error peer_gone() {
    return {Errc::PeerGone, "the other end of a control socket is closed"};
}

/// Waits for `events` until the deadline. False when it passes first.
Result<bool> wait_for(int fd, short events, ControlSocket::Deadline deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd entry{.fd = fd, .events = events, .revents = 0};
        const auto limit = static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
        const int ready = ::poll(&entry, 1, limit);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return failed("poll");
    }
}

/// The control data that carries descriptors, attached to the first byte of a frame.
struct Ancillary {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesPerCall * sizeof(int))> bytes{};

    void attach(msghdr& header, std::span<const int> files) {
        if (files.empty()) return;
        header.msg_control = bytes.data();
        header.msg_controllen = CMSG_SPACE(files.size_bytes());
        cmsghdr* part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(files.size_bytes());
        std::memcpy(CMSG_DATA(part), files.data(), files.size_bytes());
    }
};

}  // namespace

Result<std::pair<ControlSocket, ControlSocket>> ControlSocket::make_pair() {
    std::array<int, 2> ends{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return failed("socketpair");
    }
    return std::pair{ControlSocket{OwnedFd{ends[0]}}, ControlSocket{OwnedFd{ends[1]}}};
}

ControlSocket::Frame::Frame(const control::Message& message,
                            std::span<const int> files,
                            Envelope envelope)
    : files_{files.begin(), files.end()} {
    PACE_CHECK(files.size() <= kControlFilesMax, "too many descriptors for one control message");
    const std::vector<std::byte> body = control::encode(message);
    const ControlFrameHeader header{
        .magic = kControlMagic,
        .version = static_cast<std::uint16_t>(msg::kWireVersion),
        .type = static_cast<std::uint16_t>(control::type_of(message)),
        .len = static_cast<std::uint32_t>(body.size()),
        .files = static_cast<std::uint32_t>(files.size()),
        .from = envelope.from.value,
        .to = envelope.to.value,
        .zero = 0,
    };
    bytes_.resize(sizeof header + body.size());
    std::memcpy(bytes_.data(), &header, sizeof header);
    std::copy(body.begin(), body.end(), bytes_.begin() + sizeof header);
}

Status ControlSocket::Frame::own_files() {
    std::vector<OwnedFd> owned;
    for (const int file : files_) {
        owned.emplace_back(::fcntl(file, F_DUPFD_CLOEXEC, 0));
        if (!owned.back()) return failed("fcntl(F_DUPFD_CLOEXEC)");
    }
    for (std::size_t i = 0; i < owned.size(); ++i) files_[i] = owned[i].get();
    owned_ = std::move(owned);
    return {};
}

Result<ControlSocket::Sent> ControlSocket::try_send(Frame& frame) {
    while (frame.bytes_left() > 0) {
        const std::span<const int> files{frame.files_};
        const std::span<const int> portion = files.first(std::min(files.size(), kFilesPerCall));
        const bool last = portion.size() == files.size();
        iovec part{.iov_base = frame.bytes_.data() + frame.sent_,
                   .iov_len = last ? frame.bytes_left() : 1};
        msghdr call{};
        call.msg_iov = &part;
        call.msg_iovlen = 1;
        Ancillary ancillary;
        ancillary.attach(call, portion);
        const ssize_t count = ::sendmsg(fd_.get(), &call, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            frame.sent_ += static_cast<std::size_t>(count);
            const auto sent_files = static_cast<std::ptrdiff_t>(portion.size());
            frame.files_.erase(frame.files_.begin(), frame.files_.begin() + sent_files);
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET) return peer_gone();
        if (errno == EINTR) continue;
        if (errno == ETOOMANYREFS) return Sent::FilesInFlight;
        if (errno == EAGAIN) return Sent::Full;
        return failed("sendmsg");
    }
    frame.owned_.clear();
    return Sent::All;
}

Status ControlSocket::send(const control::Message& message,
                           std::span<const int> files,
                           Millis limit,
                           Envelope envelope) {
    Frame frame{message, files, envelope};
    const Deadline deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
        const Result<Sent> sent = try_send(frame);
        if (!sent.ok()) return sent.error();
        if (sent.value() == Sent::All) return {};
        if (sent.value() == Sent::FilesInFlight && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(Millis{1});  // until others read
            continue;
        }
        const Result<bool> writable = wait_for(fd_.get(), POLLOUT, deadline);
        if (!writable.ok()) return writable.error();
        if (!writable.value()) {
            return Error{Errc::PeerGone,
                         fmt::format("the other end of a control socket has read nothing for {} ms",
                                     limit.count())};
        }
    }
}

Result<ControlSocket::Read> ControlSocket::read_some() {
    std::array<std::byte, kReadBytes> bytes;
    Ancillary ancillary;
    iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr call{};
    call.msg_iov = &part;
    call.msg_iovlen = 1;
    call.msg_control = ancillary.bytes.data();
    call.msg_controllen = ancillary.bytes.size();
    ssize_t count = -1;
    do {
        count = ::recvmsg(fd_.get(), &call, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) return Read::Nothing;
    if (count < 0 && errno == ECONNRESET) return Read::EndOfFile;
    if (count < 0) return failed("recvmsg");

    for (cmsghdr* item = CMSG_FIRSTHDR(&call); item != nullptr; item = CMSG_NXTHDR(&call, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t files = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < files; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(item) + i * sizeof fd, sizeof fd);
            pending_files_.emplace_back(fd);
        }
    }
    // The kernel also cuts off descriptors for which this process has no number left.
    if ((call.msg_flags & MSG_CTRUNC) != 0 && !OwnedFd{::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)}) {
        return failed("recvmsg");
    }
    if ((call.msg_flags & MSG_CTRUNC) != 0 || pending_files_.size() > 2 * kControlFilesMax) {
        return Error{Errc::Protocol,
                     "a peer sent more descriptors than a control message may carry"};
    }
    if (count == 0) return Read::EndOfFile;
    pending_.insert(pending_.end(), bytes.begin(), bytes.begin() + count);
    return Read::Some;
}

Result<std::optional<ControlSocket::Received>> ControlSocket::take_frame() {
    ControlFrameHeader header{};
    if (pending_.size() < sizeof header) return std::optional<Received>{};
    std::memcpy(&header, pending_.data(), sizeof header);
    if (header.magic != kControlMagic || header.version != msg::kWireVersion) {
        return Error{
            Errc::Protocol,
            fmt::format("a control frame of version {} (magic {}); this build speaks version {}",
                        header.version, header.magic, msg::kWireVersion)};
    }
    const std::uint32_t limit = control::body_bytes_max(header.type);
    if (limit == 0 || header.len > limit || header.files > kControlFilesMax) {
        return Error{Errc::Protocol,
                     fmt::format("a control frame of type {} claims {} bytes and {} descriptors; "
                                 "at most {} and {} are allowed",
                                 header.type, header.len, header.files, limit, kControlFilesMax)};
    }
    if (pending_.size() - sizeof header < header.len) return std::optional<Received>{};
    if (pending_files_.size() < header.files) {
        return Error{Errc::Protocol,
                     fmt::format("a control frame announces {} descriptors and brought {}",
                                 header.files, pending_files_.size())};
    }
    Result<control::Message> message =
        control::decode(header.type, std::span{pending_}.subspan(sizeof header, header.len));
    if (!message.ok()) return message.error();
    Received received{std::move(message).value(), {}, {StageId{header.from}, StageId{header.to}}};
    for (std::uint32_t i = 0; i < header.files; ++i) {
        received.files.push_back(std::move(pending_files_.front()));
        pending_files_.pop_front();
    }
    pending_.erase(pending_.begin(),
                   pending_.begin() + static_cast<std::ptrdiff_t>(sizeof header + header.len));
    return std::optional<Received>{std::move(received)};
}

Result<std::optional<ControlSocket::Received>> ControlSocket::try_receive() {
    for (;;) {
        Result<std::optional<Received>> frame = take_frame();
        if (!frame.ok() || frame.value().has_value()) return frame;
        const Result<Read> read = read_some();
        if (!read.ok()) return read.error();
        if (read.value() == Read::Nothing) return std::optional<Received>{};
        if (read.value() == Read::EndOfFile) return peer_gone();
    }
}

Result<ControlSocket::Received> ControlSocket::receive(Deadline deadline) {
    for (;;) {
        Result<std::optional<Received>> frame = try_receive();
        if (!frame.ok()) return frame.error();
        if (frame.value().has_value()) return std::move(*std::move(frame).value());
        const Result<bool> readable = wait_for(fd_.get(), POLLIN, deadline);
        if (!readable.ok()) return readable.error();
        if (!readable.value()) return Error{Errc::Cancelled, "no control message came in time"};
    }
}

}  // namespace paceline
