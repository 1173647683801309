#include "launch/base/interrupt.hpp"

#include <atomic>
#include <csignal>
#include <string_view>
#include <unistd.h>

#include "ipc/base/check.hpp"
#include "launch/base/exit_codes.hpp"

namespace paceline {

namespace {

// What the handlers may touch: lock-free atomics only. Their partner is the main thread, which
// the signal interrupts.
std::atomic<CancelToken*> interrupted_token{
    nullptr};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): of a signal handler
std::atomic<bool> was_raised{
    false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): same
std::atomic<bool> drains{
    false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): same
std::atomic<unsigned> drain_seconds{
    0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): same
static_assert(std::atomic<CancelToken*>::is_always_lock_free);

void cancel_target() {
    if (CancelToken* token = interrupted_token.load(); token != nullptr) token->cancel();
}

void let_the_next_one_kill() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGUSR1, SIG_IGN);  // a starter may send it to all of its tasks, again and again
}

void on_interrupt(int /*signal*/) {
    let_the_next_one_kill();
    was_raised.store(true);
    cancel_target();
}

void on_terminate(int /*signal*/) {
    let_the_next_one_kill();
    drains.store(true);
    if (drain_seconds.load() == 0) return cancel_target();
    alarm(drain_seconds.load());
}

void on_drain_over(int /*signal*/) {
    cancel_target();
}

void on_usr1_while_loading(int /*signal*/) {
    constexpr std::string_view kText = "paceline: SIGUSR1 came before the answer began\n";
    (void)!::write(STDERR_FILENO, kText.data(), kText.size());
    ::_exit(kExitTerminated);  // another thread may hold any lock
}

void catch_signal(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(CancelToken& cancel, std::chrono::milliseconds drain_limit) {
    PACE_CHECK(interrupted_token.load() == nullptr, "only one Interrupt at a time");
    interrupted_token.store(&cancel);
    drain_seconds.store(
        static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(drain_limit).count()));
    drains.store(false);
    catch_signal(SIGALRM, on_drain_over);
    rearm();
}

Interrupt::~Interrupt() {
    alarm(0);
    std::signal(SIGALRM, SIG_DFL);
    let_the_next_one_kill();
    std::signal(SIGUSR1, SIG_DFL);
    interrupted_token.store(nullptr);
}

void end_on_usr1_while_loading() {
    catch_signal(SIGUSR1, on_usr1_while_loading);
}

bool Interrupt::raised() const {
    return was_raised.load();
}

bool Interrupt::draining() const {
    return drains.load();
}

void Interrupt::rearm() {
    was_raised.store(false);
    if (drains.load()) return;  // nothing begins any more, and the next signal kills
    interrupted_token.load()->reset();
    catch_signal(SIGINT, on_interrupt);
    catch_signal(SIGTERM, on_terminate);
    catch_signal(SIGUSR1, on_terminate);
}

}  // namespace paceline
