#include "launch/interrupt.hpp"

#include <atomic>
#include <csignal>

#include "ipc/base/check.hpp"

namespace paceline {

namespace {

// What the handler may touch: lock-free atomics only.
std::atomic<CancelToken*> target{
    nullptr};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): a signal handler has no other argument
std::atomic<bool> was_raised{
    false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): same
static_assert(std::atomic<CancelToken*>::is_always_lock_free);

void on_signal(int /*signal*/) {
    was_raised.store(true);
    if (CancelToken* token = target.load(); token != nullptr) token->cancel();
}

void catch_once(int signal) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(CancelToken& cancel) {
    PACE_CHECK(target.load() == nullptr, "only one Interrupt at a time");
    target.store(&cancel);
    rearm();
}

Interrupt::~Interrupt() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    target.store(nullptr);
}

bool Interrupt::raised() const {
    return was_raised.load();
}

void Interrupt::rearm() {
    was_raised.store(false);
    target.load()->reset();
    catch_once(SIGINT);
    catch_once(SIGTERM);
}

}  // namespace paceline
