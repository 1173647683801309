// nccl.hpp between processes without a GPU: communicators of two ranks, with NCCL's rules.
//
// A step of work that NCCL does in a background thread is done in one here (launch, connection,
// init), and what a kernel does in the thread of the stream. What NCCL does not forgive is misuse
// (emulation.hpp).
#include <cstring>
#include <fmt/core.h>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <utility>

#include "ipc/device/nccl.hpp"
#include "tests/emulated/driver/context.hpp"
#include "tests/emulated/driver/emulation.hpp"
#include "tests/emulated/driver/nccl_fifo.hpp"
#include "tests/emulated/driver/nccl_meeting.hpp"
#include "tests/emulated/driver/stream.hpp"

namespace paceline {
namespace {

using namespace std::chrono_literals;
using emulated::Fifo;
using emulated::misuse;
using Clock = std::chrono::steady_clock;

constexpr int kPoison = 0xFF;
constexpr auto kSpin = 20us;

/// What work in streams shares with its communicator.
struct Shared {
    emulated::Pair* pair = nullptr;
    std::atomic<bool> stop{false};  // aborted or revoked
    std::atomic<int> in_streams{0};

    Shared() = default;
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() {
        if (pair != nullptr) ::munmap(pair, sizeof(*pair));
    }
};

/// A kernel that sends or receives: called until it is done.
class Transfer {
public:
    Transfer(std::shared_ptr<Shared> shared,
             Fifo& fifo,
             const std::byte* from,
             std::byte* to,
             std::size_t bytes)
        : shared_{std::move(shared)}, fifo_{fifo}, from_{from}, to_{to}, bytes_{bytes} {
        ++shared_->in_streams;
    }
    bool operator()() {
        const bool ended = shared_->stop || move_on();
        if (ended) --shared_->in_streams;
        return ended;
    }

private:
    bool move_on() {
        if (!begun_) {
            begun_ = true;
            if (to_ != nullptr) std::memset(to_, kPoison, bytes_);
            due_ = Clock::now() + emulated::draw_delay(emulated::link_rules().late_max);
        }
        if (Clock::now() < due_) return false;
        while (at_ < bytes_) {
            const std::size_t part = std::min(Fifo::kStepBytes, bytes_ - at_);
            const bool moved =
                to_ != nullptr ? fifo_.take(to_ + at_, part) : fifo_.put(from_ + at_, part);
            if (!moved) return false;
            at_ += part;
        }
        return true;
    }

    std::shared_ptr<Shared> shared_;
    Fifo& fifo_;
    const std::byte* from_;
    std::byte* to_;
    std::size_t bytes_;
    std::size_t at_ = 0;
    bool begun_ = false;
    Clock::time_point due_{};
};

struct Communicator {
    NcclId id{};
    int rank = 0;
    int device = 0;
    std::shared_ptr<Shared> shared = std::make_shared<Shared>();
    std::thread background;
    std::atomic<bool> background_ended{false};
    NcclResult result = NcclResult::Success;  // of the background thread
    NcclResult state = NcclResult::Success;
    emulated::Stream* launching_into = nullptr;
    bool spoilt = false;
    bool revoked = false;
    std::array<bool, 2> connected{};  // as sender, as receiver

    void begin(std::function<NcclResult()> work) {
        background_ended = false;
        state = NcclResult::InProgress;
        background = std::thread{[this, work = std::move(work)] {
            result = work();
            background_ended = true;
        }};
    }
};

/// Sleeps until `until` or the end of the communicator.
void sleep_in(const Communicator& comm, std::chrono::microseconds how_long) {
    const Clock::time_point until = Clock::now() + how_long;
    while (Clock::now() < until && !comm.shared->stop) std::this_thread::sleep_for(kSpin);
}

NcclResult connect_pair(Communicator& comm, Fifo& fifo, bool sends) {
    if (comm.connected[sends ? 0 : 1]) return NcclResult::Success;
    sleep_in(comm, emulated::draw_delay(emulated::link_rules().connect_max));
    if (emulated::link_rules().connect_fails) return NcclResult::UnhandledCudaError;
    (sends ? fifo.sender_connected : fifo.receiver_connected) = 1;
    while (!comm.shared->stop &&
           (sends ? fifo.receiver_connected : fifo.sender_connected).load() == 0) {
        std::this_thread::sleep_for(kSpin);
    }
    comm.connected[sends ? 0 : 1] = true;
    return NcclResult::Success;
}

class EmulatedNccl final : public Nccl {
public:
    int version() const override { return emulated::link_rules().nccl_version; }
    NcclResult unique_id(NcclId& id) override { return emulated::make_id(id); }

    NcclResult init(NcclComm& comm, int ranks, const NcclId& id, int rank) override {
        comm = nullptr;
        if (emulated::current_device() < 0)
            misuse("ncclCommInitRankConfig() in a thread without device");
        if (ranks != 2 || rank < 0 || rank >= ranks) return NcclResult::InvalidArgument;
        auto made = std::make_unique<Communicator>();
        Communicator& one = *made;
        one.id = id;
        one.rank = rank;
        one.device = emulated::current_device();
        one.begin([&one, ranks] {
            OwnedFd file;
            const NcclResult met = emulated::meet(one.id, ranks, one.rank, sizeof(emulated::Pair),
                                                  one.shared->stop, file);
            if (met != NcclResult::Success) return met;
            void* at = ::mmap(nullptr, sizeof(emulated::Pair), PROT_READ | PROT_WRITE, MAP_SHARED,
                              file.get(), 0);
            if (at == MAP_FAILED) return NcclResult::SystemError;
            one.shared->pair = static_cast<emulated::Pair*>(at);
            return NcclResult::Success;
        });
        comm = made.get();
        emulated::count_object(1);
        const std::scoped_lock lock(mutex_);
        communicators_.emplace(comm, std::move(made));
        return NcclResult::InProgress;
    }

    NcclResult state(NcclComm comm, NcclResult& state) override {
        Communicator* one = find(comm, "ncclCommGetAsyncError()");
        if (one == nullptr) return NcclResult::InvalidArgument;
        if (one->background.joinable() && one->background_ended) {
            one->background.join();
            one->state = one->result;
            if (one->launching_into != nullptr) one->launching_into->launching(-1);
            one->launching_into = nullptr;
            const std::scoped_lock lock(mutex_);
            busy_[one->device].erase(one);
        }
        state = one->spoilt ? NcclResult::InvalidArgument : one->state;
        return NcclResult::Success;
    }

    NcclResult send(const std::byte* from,
                    std::size_t bytes,
                    int peer,
                    NcclComm comm,
                    DeviceStream stream) override {
        return operate(comm, peer, from, nullptr, bytes, stream);
    }
    NcclResult receive(
        std::byte* to, std::size_t bytes, int peer, NcclComm comm, DeviceStream stream) override {
        return operate(comm, peer, nullptr, to, bytes, stream);
    }

    bool can_revoke() const override { return emulated::link_rules().nccl_revokes; }

    NcclResult revoke(NcclComm comm) override {
        Communicator* one = find(comm, "ncclCommRevoke()");
        if (one == nullptr || one->revoked) return NcclResult::InvalidArgument;
        if (spoils(*one, "ncclCommRevoke()")) return NcclResult::InvalidArgument;
        one->revoked = true;
        one->shared->stop = true;
        one->begin([] {
            std::this_thread::sleep_for(emulated::draw_delay(emulated::link_rules().abort_max));
            return NcclResult::Success;
        });
        return NcclResult::InProgress;
    }

    NcclResult abort(NcclComm comm) override {
        Communicator* one = find(comm, "ncclCommAbort()");
        if (one == nullptr) return NcclResult::InvalidArgument;
        while (emulated::link_rules().abort_hangs) std::this_thread::sleep_for(1ms);
        one->shared->stop = true;
        emulated::end_listener(one->id);
        if (one->background.joinable()) one->background.join();
        if (one->launching_into != nullptr) one->launching_into->launching(-1);
        std::this_thread::sleep_for(emulated::draw_delay(emulated::link_rules().abort_max));
        while (one->shared->in_streams > 0) std::this_thread::sleep_for(kSpin);
        emulated::count_object(-1);
        const std::scoped_lock lock(mutex_);
        busy_[one->device].erase(one);
        communicators_.erase(comm);
        return NcclResult::Success;
    }

    std::string last_error(NcclComm comm) override {
        static_cast<void>(comm);
        return "emulated NCCL";
    }

private:
    Communicator* find(NcclComm comm, const char* call) {
        const std::scoped_lock lock(mutex_);
        const auto found = communicators_.find(comm);
        if (found != communicators_.end()) return found->second.get();
        misuse(fmt::format("{} of a communicator that is none, or no more", call));
        return nullptr;
    }

    static bool spoils(Communicator& comm, const char* call) {
        if (comm.state != NcclResult::InProgress) return false;
        misuse(fmt::format("{} while an operation of the communicator is in progress", call));
        comm.spoilt = true;
        return true;
    }

    /// One communicator of a device at a time.
    void begin_busy(Communicator& comm) {
        const std::scoped_lock lock(mutex_);
        std::set<const Communicator*>& busy = busy_[comm.device];
        if (!busy.empty()) {
            misuse(fmt::format("two communicators of cuda:{} have an operation in progress",
                               comm.device));
        }
        busy.insert(&comm);
    }

    NcclResult operate(NcclComm comm,
                       int peer,
                       const std::byte* from,
                       std::byte* to,
                       std::size_t bytes,
                       DeviceStream stream) {
        const char* call = to != nullptr ? "ncclRecv()" : "ncclSend()";
        Communicator* one = find(comm, call);
        if (one == nullptr || spoils(*one, call)) return NcclResult::InvalidArgument;
        if (one->spoilt || peer != 1 - one->rank || bytes == 0) return NcclResult::InvalidArgument;
        if (one->revoked) return NcclResult::InvalidUsage;
        if (one->state != NcclResult::Success) return one->state;
        begin_busy(*one);
        auto& into = *static_cast<emulated::Stream*>(stream);
        into.launching(1);
        one->launching_into = &into;
        const bool sends = to == nullptr;
        Fifo& fifo = one->shared->pair->from[static_cast<std::size_t>(sends ? one->rank : peer)];
        one->begin([one, &fifo, &into, from, to, bytes, sends] {
            const NcclResult connected = connect_pair(*one, fifo, sends);
            if (connected != NcclResult::Success) return connected;
            sleep_in(*one, emulated::draw_delay(emulated::link_rules().launch_max));
            if (one->shared->stop) return NcclResult::InProgress;
            into.submit(Transfer{one->shared, fifo, from, to, bytes});
            return NcclResult::Success;
        });
        return NcclResult::InProgress;
    }

    std::mutex mutex_;
    std::map<NcclComm, std::unique_ptr<Communicator>> communicators_;
    std::map<int, std::set<const Communicator*>> busy_;
};

}  // namespace

Result<std::shared_ptr<Nccl>> open_nccl(const std::string& named) {
    static_cast<void>(named);
    static auto* one = new std::shared_ptr<Nccl>{std::make_shared<EmulatedNccl>()};
    return *one;
}

}  // namespace paceline
