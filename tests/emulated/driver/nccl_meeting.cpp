#include "tests/emulated/driver/nccl_meeting.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <random>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated/driver/emulation.hpp"

namespace paceline::emulated {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kLookMs = 5;  // how often a wait looks whether it is to stop
constexpr std::size_t kSecretBytes = 16;

struct Hello {
    std::array<std::byte, kSecretBytes> secret;
    int ranks;
    int rank;
    int version;
    std::size_t bytes;
};

/// The id is a secret; the listener's abstract name follows from it.
sockaddr_un address_of(const NcclId& id, socklen_t& size) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    constexpr char kName[] = "paceline-emulated-nccl-";
    std::size_t at = 1;  // abstract: the first byte is 0
    for (const char* c = kName; *c != 0; ++c) address.sun_path[at++] = *c;
    for (std::size_t i = 0; i < kSecretBytes; ++i) {
        const auto byte = static_cast<unsigned>(id[i]);
        address.sun_path[at++] = "0123456789abcdef"[byte >> 4U];
        address.sun_path[at++] = "0123456789abcdef"[byte & 15U];
    }
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + at);
    return address;
}

bool send_file(int to, NcclResult result, int file) {
    iovec part{&result, sizeof(result)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (file >= 0) {
        message.msg_control = space.data();
        message.msg_controllen = space.size();
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &file, sizeof(int));
    }
    return ::sendmsg(to, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(result));
}

NcclResult receive_file(int from, OwnedFd& file) {
    NcclResult result = NcclResult::RemoteError;
    iovec part{&result, sizeof(result)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    if (::recvmsg(from, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(result))) {
        return NcclResult::RemoteError;
    }
    if (const cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr) {
        int got = -1;
        std::memcpy(&got, CMSG_DATA(head), sizeof(int));
        file.reset(got);
    }
    return result;
}

/// Of one id, with a thread.
class Listener {
public:
    Listener(const NcclId& id, OwnedFd socket)
        : socket_{std::move(socket)}, thread_{[this, id] { run(id); }} {
        count_object(1);
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() {
        stop_ = true;
        thread_.join();
        count_object(-1);
    }

private:
    struct Caller {
        OwnedFd socket;
        Hello hello{};
    };

    void run(const NcclId& id) {
        std::vector<Caller> callers;
        while (!stop_) {
            pollfd ready{socket_.get(), POLLIN, 0};
            if (::poll(&ready, 1, kLookMs) <= 0) continue;
            Caller caller{OwnedFd{::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)}, {}};
            const ssize_t got =
                ::recv(caller.socket.get(), &caller.hello, sizeof(Hello), MSG_WAITALL);
            if (got != static_cast<ssize_t>(sizeof(Hello)) ||
                !std::equal(caller.hello.secret.begin(), caller.hello.secret.end(), id.begin())) {
                continue;  // who lacks the secret is dropped
            }
            callers.push_back(std::move(caller));
            const bool right = all_fit(callers);
            if (right && callers.size() < static_cast<std::size_t>(caller_ranks(callers))) continue;
            answer(callers, right);
            break;
        }
        socket_.reset();  // who comes later is refused
    }

    static int caller_ranks(const std::vector<Caller>& callers) { return callers[0].hello.ranks; }

    static bool all_fit(const std::vector<Caller>& callers) {
        const Hello& first = callers.front().hello;
        const Hello& last = callers.back().hello;
        if (last.ranks != first.ranks || last.version != first.version ||
            last.bytes != first.bytes || last.rank < 0 || last.rank >= last.ranks) {
            return false;
        }
        return std::none_of(callers.begin(), callers.end() - 1,
                            [&](const Caller& other) { return other.hello.rank == last.rank; });
    }

    static void answer(const std::vector<Caller>& callers, bool right) {
        OwnedFd file;
        if (right) {
            file.reset(::memfd_create("paceline-emulated-nccl", MFD_CLOEXEC));
            const auto bytes = static_cast<off_t>(callers.front().hello.bytes);
            right = file && ::ftruncate(file.get(), bytes) == 0;
        }
        const NcclResult result = right ? NcclResult::Success : NcclResult::InvalidUsage;
        for (const Caller& caller : callers) {
            (void)send_file(caller.socket.get(), result, right ? file.get() : -1);
        }
    }

    OwnedFd socket_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

struct Listeners {
    std::mutex mutex;
    std::map<NcclId, std::unique_ptr<Listener>> all;
};

Listeners& listeners() {
    static Listeners* one = new Listeners;
    return *one;
}

/// Connected, or -1: refused until `limit`, or stopped.
OwnedFd call(const NcclId& id, const std::atomic<bool>& stop) {
    const Clock::time_point limit = Clock::now() + link_rules().refused_limit;
    socklen_t size = 0;
    const sockaddr_un address = address_of(id, size);
    while (!stop) {
        OwnedFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
            return socket;
        }
        if (Clock::now() >= limit) break;
        std::this_thread::sleep_for(std::chrono::milliseconds{kLookMs});
    }
    return OwnedFd{};
}

}  // namespace

NcclResult make_id(NcclId& id) {
    std::random_device source;
    id.fill(std::byte{0});
    for (std::size_t i = 0; i < kSecretBytes; ++i) id[i] = static_cast<std::byte>(source());
    OwnedFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    socklen_t size = 0;
    const sockaddr_un address = address_of(id, size);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(socket.get(), 8) != 0) {
        return NcclResult::SystemError;
    }
    const std::scoped_lock lock(listeners().mutex);
    listeners().all.emplace(id, std::make_unique<Listener>(id, std::move(socket)));
    return NcclResult::Success;
}

NcclResult meet(const NcclId& id,
                int ranks,
                int rank,
                std::size_t bytes,
                const std::atomic<bool>& stop,
                OwnedFd& file) {
    const OwnedFd socket = call(id, stop);
    if (!socket) return stop ? NcclResult::InProgress : NcclResult::RemoteError;
    Hello hello{{}, ranks, rank, link_rules().nccl_version, bytes};
    std::copy_n(id.begin(), kSecretBytes, hello.secret.begin());
    if (::send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof(hello))) {
        return NcclResult::RemoteError;
    }
    while (!stop) {
        pollfd ready{socket.get(), POLLIN, 0};
        if (::poll(&ready, 1, kLookMs) > 0) return receive_file(socket.get(), file);
    }
    return NcclResult::InProgress;
}

void end_listener(const NcclId& id) {
    std::unique_ptr<Listener> ended;
    const std::scoped_lock lock(listeners().mutex);
    const auto found = listeners().all.find(id);
    if (found == listeners().all.end()) return;
    ended = std::move(found->second);
    listeners().all.erase(found);
}

}  // namespace paceline::emulated
