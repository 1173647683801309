// The ways to pass 64 bytes there and back between two processes that are compared here.
//
// A link is made before the fork; end 0 is the parent's, end 1 the child's. send(end) sends from
// that end to the other, receive(end) waits at it.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <new>
#include <string>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/interprocess/ipc/message_queue.hpp>

#include "ipc/transport/doorbell.hpp"
#include "ipc/transport/owned_fd.hpp"
#include "ipc/transport/spsc_ring.hpp"

namespace paceline::bench {

inline constexpr std::size_t kMessageBytes = 64;
using Message = std::array<std::byte, kMessageBytes>;

inline constexpr std::uint16_t kFrame = 1;
inline constexpr std::uint32_t kFrameBytesMax = 8192;
inline constexpr std::array kFrameRules = {KindRule{kFrame, 1, kFrameBytesMax, Urgency::Normal}};
inline constexpr std::array kMessageRules = {KindRule{kFrame, 1, kMessageBytes, Urgency::Normal}};

/// One direction: a ring and the doorbell of its consumer, as a stage has them.
struct Line {
    explicit Line(std::span<const KindRule> rules = kMessageRules)
        : file{make_file(rules)},
          bell_file{Doorbell::create("bench").value()},
          out{RingProducer::attach(map(file), Epoch{1}, rules).value()},
          in{RingConsumer::attach(map(file), Epoch{1}, rules).value()},
          peer_bell{Doorbell::attach(map(bell_file)).value()},
          own_bell{Doorbell::attach(map(bell_file)).value()} {}

    static ShmFile make_file(std::span<const KindRule> rules) {
        RingOptions options;
        options.slots = 256;
        options.urgent_slots = 16;
        options.payload_bytes = bytes_max(rules);
        return create_ring("bench", options).value();
    }
    static ShmRegion map(const ShmFile& file) { return ShmRegion::attach(file.fd(), 1).value(); }

    ShmFile file;
    ShmFile bell_file;
    RingProducer out;
    RingConsumer in;
    Doorbell peer_bell;  // the producer's end of it
    Doorbell own_bell;   // the consumer's
};

/// What the product does: push, ring; wait (spin, then sleep), pop with all checks.
class RingLink {
public:
    explicit RingLink(std::chrono::microseconds spin) : spin_{spin} {}
    void send(int end) {
        Line& line = lines_[static_cast<std::size_t>(end)];
        PACE_CHECK(line.out.try_push(kFrame, message_) == Push::Ok, "a full ring");
        line.peer_bell.ring();
    }
    void receive(int end) {
        Line& line = lines_[static_cast<std::size_t>(1 - end)];
        while (!line.own_bell.wait([&line] { return line.in.has_frame(); }, spin_,
                                   Doorbell::kSleepMax)) {
        }
        PACE_CHECK(line.in.try_pop(message_).outcome == Pop::Frame, "a lost frame");
    }

private:
    std::chrono::microseconds spin_;
    std::array<Line, 2> lines_;
    Message message_{};
};

/// The floor of spinning: one cache line each way, a counter in it, no checks, no queue.
class RawLineLink {
public:
    RawLineLink() {
        void* memory = ::mmap(nullptr, sizeof(Raw) * 2, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        PACE_CHECK(memory != MAP_FAILED, "mmap");
        for (std::size_t i = 0; i < 2; ++i) lines_[i] = new (static_cast<Raw*>(memory) + i) Raw{};
    }
    RawLineLink(const RawLineLink&) = delete;
    RawLineLink& operator=(const RawLineLink&) = delete;
    ~RawLineLink() { ::munmap(lines_[0], sizeof(Raw) * 2); }
    void send(int end) {
        Raw& line = *lines_[static_cast<std::size_t>(end)];
        std::memcpy(line.bytes, message_.data(), sizeof line.bytes);
        // Release pairs with the acquire in receive().
        line.count.store(++sent_, std::memory_order_release);
    }
    void receive(int end) {
        Raw& line = *lines_[static_cast<std::size_t>(1 - end)];
        ++received_;
        while (line.count.load(std::memory_order_acquire) != received_) cpu_relax();
        std::memcpy(message_.data(), line.bytes, sizeof line.bytes);
    }

private:
    struct Raw {
        alignas(kLineBytes) std::atomic<std::uint64_t> count;
        std::byte bytes[kMessageBytes - sizeof(std::uint64_t)];
    };
    std::array<Raw*, 2> lines_{};
    Message message_{};
    std::uint64_t sent_ = 0;  // each process counts for itself after the fork
    std::uint64_t received_ = 0;
};

/// The floor of sleeping: the kernel's own counter. Carries no bytes.
class EventLink {
public:
    EventLink() {
        for (OwnedFd& fd : fds_) fd.reset(::eventfd(0, EFD_CLOEXEC));
    }
    void send(int end) {
        const std::uint64_t one = 1;
        PACE_CHECK(::write(fds_[static_cast<std::size_t>(1 - end)].get(), &one, 8) == 8, "write");
    }
    void receive(int end) {
        std::uint64_t count = 0;
        PACE_CHECK(::read(fds_[static_cast<std::size_t>(end)].get(), &count, 8) == 8, "read");
    }

private:
    std::array<OwnedFd, 2> fds_;
};

class SocketLink {
public:
    SocketLink() {
        std::array<int, 2> ends{};
        PACE_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0, "socketpair");
        for (std::size_t i = 0; i < 2; ++i) fds_[i].reset(ends[i]);
    }
    void send(int end) {
        PACE_CHECK(::send(fd(end), message_.data(), kMessageBytes, 0) == kMessageBytes, "send");
    }
    void receive(int end) {
        PACE_CHECK(::recv(fd(end), message_.data(), kMessageBytes, 0) == kMessageBytes, "recv");
    }

private:
    [[nodiscard]] int fd(int end) const { return fds_[static_cast<std::size_t>(end)].get(); }
    std::array<OwnedFd, 2> fds_;
    Message message_{};
};

/// Boost.Interprocess's own queue: a mutex and two conditions in shared memory.
class BoostLink {
public:
    BoostLink() {
        for (int end = 0; end < 2; ++end) {
            const std::string name = fmt::format("paceline-bench-{}-{}", ::getpid(), end);
            queues_[static_cast<std::size_t>(end)] = std::make_unique<Queue>(
                boost::interprocess::create_only, name.c_str(), 256, kMessageBytes);
            Queue::remove(name.c_str());  // both processes have it mapped
        }
    }
    void send(int end) {
        queues_[static_cast<std::size_t>(end)]->send(message_.data(), kMessageBytes, 0);
    }
    void receive(int end) {
        std::size_t bytes = 0;
        unsigned priority = 0;
        queues_[static_cast<std::size_t>(1 - end)]->receive(message_.data(), kMessageBytes, bytes,
                                                            priority);
    }

private:
    using Queue = boost::interprocess::message_queue;
    std::array<std::unique_ptr<Queue>, 2> queues_;
    Message message_{};
};

}  // namespace paceline::bench
