#include "ipc/device/nccl_issuer.hpp"

#include <algorithm>
#include <condition_variable>
#include <fmt/core.h>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/device/nccl_channel.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

// An operation takes some ten microseconds: looked at without sleeping for this long, then less
// often.
constexpr int kLooksWithoutSleep = 200;
constexpr std::chrono::microseconds kSleepMin{20};
constexpr std::chrono::microseconds kSleepMax{1000};

/// How long to wait before the next look: longer while nothing moves.
class Pause {
public:
    void moved() { looks_ = 0; }
    [[nodiscard]] std::chrono::microseconds next() {
        if (++looks_ < kLooksWithoutSleep) return std::chrono::microseconds{0};
        return std::min(kSleepMin * (1 + (looks_ - kLooksWithoutSleep) / 16), kSleepMax);
    }

private:
    int looks_ = 0;
};

}  // namespace

struct NcclIssuer::Shared {
    std::shared_ptr<Driver> driver;
    std::shared_ptr<Nccl> nccl;

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<NcclChannel>> added;
    bool nudged = false;
    bool ends = false;
    bool ended = false;

    // What the issuer is closing, for health().
    mutable std::mutex closing_mutex;
    std::string closing;
    Clock::time_point closing_since{};

    void wait_and_take(std::optional<std::chrono::microseconds> pause,
                       std::vector<std::shared_ptr<NcclChannel>>& channels);
    [[nodiscard]] bool all_done(const std::vector<std::shared_ptr<NcclChannel>>& channels) {
        const std::scoped_lock lock(mutex);
        return ends && channels.empty() && added.empty();
    }
    void set_closing(std::string name) {
        const std::scoped_lock lock(closing_mutex);
        closing = std::move(name);
        closing_since = Clock::now();
    }
};

NcclIssuer::NcclIssuer(std::shared_ptr<Driver> driver, std::shared_ptr<Nccl> nccl)
    : shared_{std::make_shared<Shared>()} {
    shared_->driver = std::move(driver);
    shared_->nccl = std::move(nccl);
    thread_ = std::thread{[shared = shared_] { run(shared); }};
}

NcclIssuer::~NcclIssuer() {
    bool ended = false;
    {
        std::unique_lock lock(shared_->mutex);
        shared_->ends = true;
        shared_->changed.notify_all();
        ended = shared_->changed.wait_for(lock, kCloseLimit, [this] { return shared_->ended; });
    }
    if (ended) {
        thread_.join();
    } else {
        thread_.detach();  // inside abort(): it owns what it uses, and the process is ending
    }
}

void NcclIssuer::add(std::shared_ptr<NcclChannel> channel) {
    const std::scoped_lock lock(shared_->mutex);
    shared_->added.push_back(std::move(channel));
    shared_->changed.notify_all();
}

void NcclIssuer::nudge() {
    const std::scoped_lock lock(shared_->mutex);
    shared_->nudged = true;
    shared_->changed.notify_all();
}

Status NcclIssuer::health() const {
    const std::scoped_lock lock(shared_->closing_mutex);
    if (shared_->closing.empty() || Clock::now() - shared_->closing_since < kCloseLimit) return {};
    return Error{Errc::System,
                 fmt::format("{}: ncclCommAbort() did not return within {} s; this process has "
                             "to end",
                             shared_->closing, kCloseLimit.count())};
}

void NcclIssuer::Shared::wait_and_take(std::optional<std::chrono::microseconds> pause,
                                       std::vector<std::shared_ptr<NcclChannel>>& channels) {
    std::unique_lock lock(mutex);
    const auto called = [this] { return nudged || ends || !added.empty(); };
    if (!pause) {
        changed.wait(lock, called);
    } else if (pause->count() > 0) {
        changed.wait_for(lock, *pause, called);
    }
    nudged = false;
    for (auto& channel : added) channels.push_back(std::move(channel));
    added.clear();
    if (!ends) return;
    for (auto& channel : channels) channel->close();
}

void NcclIssuer::run(const std::shared_ptr<Shared>& shared) {
    std::vector<std::shared_ptr<NcclChannel>> channels;
    NcclTurn turn{*shared->driver, *shared->nccl, nullptr,
                  [&shared](const std::string& name) { shared->set_closing(name); }};
    Pause pause;
    std::optional<std::chrono::microseconds> wait;  // none: until there is something to do
    (void)shared->driver->enter();  // if it fails, so does every call that follows, and says so
    while (!shared->all_done(channels)) {
        if (wait && wait->count() == 0) std::this_thread::yield();
        shared->wait_and_take(wait, channels);
        bool moved = false;
        bool waits = false;
        for (auto& channel : channels) {
            const NcclChannel::Did did = channel->step(turn);
            moved = moved || did == NcclChannel::Did::Moved;
            waits = waits || did == NcclChannel::Did::Waited;
        }
        std::erase_if(channels, [](const auto& channel) { return channel->gone(); });
        if (moved) pause.moved();
        wait = moved || waits ? std::optional{pause.next()} : std::nullopt;
    }
    const std::scoped_lock lock(shared->mutex);
    shared->ended = true;
    shared->changed.notify_all();
}

}  // namespace paceline
