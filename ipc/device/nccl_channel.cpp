#include "ipc/device/nccl_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/core.h>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "ipc/device/slot_layout.hpp"

namespace paceline {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kWarmUpBytesMax = 4096;
constexpr std::chrono::milliseconds kAskAgain{1};
constexpr std::chrono::seconds kPeerGoneLimit{1};  // what a peer sent before it ended still arrives
constexpr std::chrono::seconds kRevokeLimit{1};
constexpr std::chrono::microseconds kRevokeLook{100};

const char* rank_text(NcclRank rank) {
    return rank == NcclRank::Producer ? "rank 0, the producer" : "rank 1, the consumer";
}

}  // namespace

NcclChannel::NcclChannel(Parts parts) : parts_{std::move(parts)} {
    waiting_.resize(parts_.spec.slots);
}

// --- the link ------------------------------------------------------------------------------------

Result<LinkState> NcclChannel::poll() const {
    const std::scoped_lock lock(mutex_);
    if (error_) return *error_;
    return open_ ? LinkState::Open : LinkState::Connecting;
}

std::byte* NcclChannel::slot(std::uint32_t index) const {
    PACE_CHECK(index < parts_.spec.slots, "a slot that the link does not have");
    return parts_.memory.data() + index * slot_stride(parts_.spec.slot_bytes);
}

void NcclChannel::post(std::uint32_t index, std::size_t bytes) {
    PACE_CHECK(index < parts_.spec.slots && bytes <= parts_.spec.slot_bytes,
               "a tensor that its slot cannot hold");
    if (bytes == 0) return;  // neither end sends anything
    const std::scoped_lock lock(mutex_);
    posted_.push_back({index, bytes});
    ++waiting_[index];
}

bool NcclChannel::done(std::uint32_t index) const {
    const std::scoped_lock lock(mutex_);
    return waiting_[index] == 0;
}

void NcclChannel::refuse(Error error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::move(error);
}

void NcclChannel::close() {
    {
        const std::scoped_lock lock(wake_mutex_);
        parts_.spec.wake = nullptr;
    }
    const std::scoped_lock lock(mutex_);
    closing_ = true;
}

// --- the issuing thread --------------------------------------------------------------------------

NcclChannel::Did NcclChannel::step(NcclTurn& turn) {
    bool closing = false;
    {
        const std::scoped_lock lock(mutex_);
        closing = closing_;
    }
    if (closing && stage_ != Stage::Gone) {
        leave(turn);
        return Did::Moved;
    }
    switch (stage_) {
        case Stage::Init:
            return init(turn);
        case Stage::Joining:
            return join(turn);
        case Stage::Agreeing:
            return agree(turn);
        case Stage::WarmingUp:
            return warm_up(turn);
        case Stage::Open:
            return work(turn);
        case Stage::Failed:
        case Stage::Gone:
            break;
    }
    return Did::Nothing;
}

NcclChannel::Did NcclChannel::init(NcclTurn& turn) {
    const NcclResult result =
        turn.nccl.init(comm_, kRanks, parts_.id, static_cast<int>(parts_.rank));
    if (result == NcclResult::Success || result == NcclResult::InProgress) {
        stage_ = Stage::Joining;
    } else {
        fail(turn, "ncclCommInitRankConfig", result);
    }
    return Did::Moved;
}

NcclChannel::Did NcclChannel::join(NcclTurn& turn) {
    NcclResult state = NcclResult::Success;
    const NcclResult result = turn.nccl.state(comm_, state);
    if (result != NcclResult::Success) state = result;
    if (state == NcclResult::Success) {
        stage_ = Stage::Agreeing;
        return Did::Moved;
    }
    if (state != NcclResult::InProgress) {
        fail(turn, "joining the communicator", state);
        return Did::Moved;
    }
    const Word word = read_word();
    if (word == Word::Ready) say(Word::Later);
    if (word == Word::Gone) {
        fail(turn, {Errc::PeerGone, place() + "joining the communicator: the other end is gone"});
        return Did::Moved;
    }
    return Did::Waited;
}

NcclChannel::Did NcclChannel::agree(NcclTurn& turn) {
    if (parts_.rank == NcclRank::Consumer && !asked_) {
        if (Clock::now() < again_ || !take(turn)) return Did::Waited;
        asked_ = true;
        say(Word::Ready);
        return Did::Moved;
    }
    switch (read_word()) {
        case Word::None:
            return Did::Waited;
        case Word::Ready:
            if (!take(turn)) {
                say(Word::Later);
                return Did::Waited;
            }
            say(Word::Start);
            begin_warm_up(turn);
            break;
        case Word::Start:
            begin_warm_up(turn);
            break;
        case Word::Later:
            give_back(turn);
            asked_ = false;
            again_ = Clock::now() + kAskAgain;
            return Did::Waited;
        case Word::Gone:
            fail(turn, {Errc::PeerGone, place() + "warm-up: the other end is gone"});
            break;
    }
    return Did::Moved;
}

std::vector<std::byte> NcclChannel::warm_up_bytes() const {
    std::vector<std::byte> bytes(std::min(parts_.spec.slot_bytes, kWarmUpBytesMax));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = parts_.id[i % parts_.id.size()] ^ static_cast<std::byte>(i / parts_.id.size());
    }
    return bytes;
}

void NcclChannel::begin_warm_up(NcclTurn& turn) {
    const std::vector<std::byte> bytes = warm_up_bytes();
    if (parts_.rank == NcclRank::Producer) {
        if (Status wrote = turn.driver.write(slot(0), bytes.data(), bytes.size()); !wrote) {
            fail(turn, {wrote.error().code, place() + "warm-up: " + wrote.error().what});
            return;
        }
    }
    stage_ = Stage::WarmingUp;
    issue(turn, {0, bytes.size()});
}

Status NcclChannel::check_warm_up(NcclTurn& turn) const {
    if (parts_.rank == NcclRank::Producer) return {};
    const std::vector<std::byte> sent = warm_up_bytes();
    std::vector<std::byte> got(sent.size());
    if (Status read = turn.driver.read(got.data(), slot(0), got.size()); !read) return read;
    if (got == sent) return {};
    return Error{Errc::System, "other bytes arrived than were sent"};
}

NcclChannel::Did NcclChannel::warm_up(NcclTurn& turn) {
    const Did did = look(turn);
    if (stage_ != Stage::WarmingUp || !launched_.empty()) return did;
    if (Status right = check_warm_up(turn); !right) {
        fail(turn, {right.error().code, place() + "warm-up: " + right.error().what});
        return Did::Moved;
    }
    stage_ = Stage::Open;
    {
        const std::scoped_lock lock(mutex_);
        open_ = true;
    }
    wake();
    return Did::Moved;
}

NcclChannel::Did NcclChannel::work(NcclTurn& turn) {
    const Did did = look(turn);
    if (stage_ != Stage::Open || launching_) return did;
    Operation next;
    {
        const std::scoped_lock lock(mutex_);
        if (posted_.empty()) return did;
        if (!take(turn)) return Did::Waited;
        next = posted_.front();
        posted_.pop_front();
    }
    issue(turn, next);
    return Did::Moved;
}

bool NcclChannel::take(NcclTurn& turn) const {
    if (turn.owner == nullptr) turn.owner = this;
    return turn.owner == this;
}

void NcclChannel::give_back(NcclTurn& turn) const {
    if (turn.owner == this) turn.owner = nullptr;
}

void NcclChannel::issue(NcclTurn& turn, Operation operation) {
    const NcclResult result =
        parts_.rank == NcclRank::Producer
            ? turn.nccl.send(slot(operation.index), operation.bytes,
                             static_cast<int>(NcclRank::Consumer), comm_, parts_.stream)
            : turn.nccl.receive(slot(operation.index), operation.bytes,
                                static_cast<int>(NcclRank::Producer), comm_, parts_.stream);
    if (result != NcclResult::Success && result != NcclResult::InProgress) {
        fail(turn, operation_text(operation), result);
        return;
    }
    launched_.push_back(operation);
    launching_ = true;
}

NcclChannel::Did NcclChannel::look(NcclTurn& turn) {
    Did did = launched_.empty() ? Did::Nothing : Did::Waited;
    if (launching_) did = look_at_launch(turn);
    while (launched_.size() > (launching_ ? 1U : 0U)) {
        Result<bool> reached = turn.driver.reached(parts_.events[launched_.front().index]);
        if (!reached) {
            fail(turn, {reached.error().code,
                        place() + operation_text(launched_.front()) + ": " + reached.error().what});
            return Did::Moved;
        }
        if (!reached.value()) break;
        finish_front();
        did = Did::Moved;
    }
    if (!launched_.empty()) look_for_peer(turn);
    return did;
}

NcclChannel::Did NcclChannel::look_at_launch(NcclTurn& turn) {
    const Operation& operation = launched_.back();
    NcclResult state = NcclResult::Success;
    const NcclResult result = turn.nccl.state(comm_, state);
    if (result != NcclResult::Success) state = result;
    if (state == NcclResult::InProgress) return Did::Waited;
    if (state != NcclResult::Success) {
        fail(turn, operation_text(operation), state);
        return Did::Moved;
    }
    launching_ = false;
    give_back(turn);
    if (Status put = turn.driver.record(parts_.events[operation.index], parts_.stream); !put) {
        fail(turn,
             {put.error().code, place() + operation_text(operation) + ": " + put.error().what});
    }
    return Did::Moved;
}

void NcclChannel::finish_front() {
    const Operation finished = launched_.front();
    launched_.pop_front();
    if (stage_ != Stage::Open) return;  // the warm-up
    {
        const std::scoped_lock lock(mutex_);
        --waiting_[finished.index];
    }
    wake();
}

void NcclChannel::look_for_peer(NcclTurn& turn) {
    if (read_word() != Word::Gone) return;
    if (!peer_gone_) peer_gone_ = Clock::now();
    if (Clock::now() - *peer_gone_ < kPeerGoneLimit) return;
    fail(turn,
         {Errc::PeerGone, place() + operation_text(launched_.front()) + ": the other end is gone"});
}

// --- the other end -------------------------------------------------------------------------------

NcclChannel::Word NcclChannel::read_word() {
    char word = 0;
    const ssize_t got = ::recv(parts_.peer.get(), &word, 1, MSG_DONTWAIT);
    if (got == 1) return static_cast<Word>(word);
    const bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EINTR);
    return nothing_yet ? Word::None : Word::Gone;
}

void NcclChannel::say(Word word) {
    // If the peer is gone, read_word() will tell.
    (void)::send(parts_.peer.get(), &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// --- errors and the end --------------------------------------------------------------------------

std::string NcclChannel::place() const {
    return fmt::format("NCCL link {}, {}: ", parts_.spec.name, rank_text(parts_.rank));
}

std::string NcclChannel::operation_text(const Operation& operation) const {
    if (stage_ == Stage::WarmingUp) return "warm-up";
    return fmt::format("{} of {} bytes, slot {}",
                       parts_.rank == NcclRank::Producer ? "send" : "receive", operation.bytes,
                       operation.index);
}

void NcclChannel::fail(NcclTurn& turn, const std::string& operation, NcclResult result) {
    const std::string more = turn.nccl.last_error(comm_);
    fail(turn, {result == NcclResult::RemoteError ? Errc::PeerGone : Errc::System,
                fmt::format("{}{}: {}{}{}", place(), operation, nccl_text(result),
                            more.empty() ? "" : ", ", more)});
}

void NcclChannel::fail(NcclTurn& turn, Error error) {
    refuse(std::move(error));
    wake();
    end_communicator(turn);
    parts_.peer.reset();  // the other end fails too, instead of waiting
    stage_ = Stage::Failed;
}

void NcclChannel::end_communicator(NcclTurn& turn) {
    if (comm_ != nullptr) {
        turn.closing(place());
        const bool idle = !launching_ && stage_ > Stage::Joining;
        if (idle && turn.nccl.can_revoke() && turn.nccl.revoke(comm_) == NcclResult::InProgress) {
            const Clock::time_point limit = Clock::now() + kRevokeLimit;
            NcclResult state = NcclResult::InProgress;
            while (turn.nccl.state(comm_, state) == NcclResult::Success &&
                   state == NcclResult::InProgress && Clock::now() < limit) {
                std::this_thread::sleep_for(kRevokeLook);
            }
        }
        (void)turn.nccl.abort(comm_);
        comm_ = nullptr;
        turn.closing("");
    }
    launching_ = false;
    launched_.clear();
    give_back(turn);
}

void NcclChannel::leave(NcclTurn& turn) {
    end_communicator(turn);
    for (DeviceEvent event : parts_.events) turn.driver.destroy_event(event);
    if (parts_.stream != nullptr) turn.driver.destroy_stream(parts_.stream);
    parts_.memory = {};
    parts_.peer.reset();
    stage_ = Stage::Gone;
}

void NcclChannel::wake() {
    const std::scoped_lock lock(wake_mutex_);
    if (parts_.spec.wake) parts_.spec.wake();
}

}  // namespace paceline
