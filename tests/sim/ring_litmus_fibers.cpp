#include "tests/sim/ring_litmus_fibers.hpp"

#include "ipc/base/check.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace paceline::test {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;

// AddressSanitizer wants to know on which stack we are.
void before_switch([[maybe_unused]] void** fake_stack,
                   [[maybe_unused]] const void* stack,
                   [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}

void after_switch([[maybe_unused]] void* fake_stack,
                  [[maybe_unused]] const void** from,
                  [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#endif
}

/// Stacks are kept: thousands of worlds are made one after the other.
std::vector<std::vector<std::byte>>& spare_stacks() {
    static std::vector<std::vector<std::byte>> stacks;
    return stacks;
}

}  // namespace

void Fibers::add(std::function<void()> body) {
    auto fiber = std::make_unique<Fiber>();
    fiber->body = std::move(body);
    if (spare_stacks().empty()) {
        fiber->stack.resize(kStackBytes);
    } else {
        fiber->stack = std::move(spare_stacks().back());
        spare_stacks().pop_back();
    }
    PACE_CHECK(::getcontext(&fiber->context) == 0, "getcontext");
    fiber->context.uc_stack.ss_sp = fiber->stack.data();
    fiber->context.uc_stack.ss_size = fiber->stack.size();
    fiber->context.uc_link = nullptr;
    // makecontext passes ints: a pointer goes in two halves.
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Fibers::enter), 2,
                  static_cast<unsigned>(self >> 32U), static_cast<unsigned>(self));
    fibers_.push_back(std::move(fiber));
}

void Fibers::enter(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Fibers*>((std::uintptr_t{high} << 32U) | low);
    self->body_of_current();
}

void Fibers::body_of_current() {
    after_switch(nullptr, &main_stack_, &main_stack_bytes_);
    Fiber& fiber = *fibers_[current_];
    try {
        if (!given_up_) fiber.body();
    } catch (const GivenUp&) {
        // run() is over; what the body owned has been released on the way here
    }
    fiber.over = true;
    before_switch(nullptr, main_stack_, main_stack_bytes_);
    ::setcontext(&main_);
}

void Fibers::resume(std::size_t index) {
    current_ = index;
    Fiber& fiber = *fibers_[index];
    void* fake_stack = nullptr;
    before_switch(&fake_stack, fiber.stack.data(), fiber.stack.size());
    PACE_CHECK(::swapcontext(&main_, &fiber.context) == 0, "swapcontext");
    after_switch(fake_stack, nullptr, nullptr);
}

void Fibers::leave() {
    Fiber& fiber = *fibers_[current_];
    before_switch(&fiber.fake_stack, main_stack_, main_stack_bytes_);
    PACE_CHECK(::swapcontext(&fiber.context, &main_) == 0, "swapcontext");
    after_switch(fiber.fake_stack, &main_stack_, &main_stack_bytes_);
    if (given_up_) throw GivenUp{};
}

bool Fibers::is_runnable(const Fiber& fiber) const {
    // Relaxed: one thread.
    return !fiber.over &&
           (fiber.word == nullptr || fiber.word->load(std::memory_order_relaxed) == 0);
}

void Fibers::run() {
    std::vector<std::size_t> runnable;
    while (!stopped_) {
        runnable.clear();
        for (std::size_t i = 0; i < fibers_.size(); ++i) {
            if (is_runnable(*fibers_[i])) runnable.push_back(i);
        }
        if (runnable.empty()) return;
        const std::size_t next =
            runnable[random_.below(static_cast<std::uint32_t>(runnable.size()))];
        note(next);
        fibers_[next]->word = nullptr;
        resume(next);
    }
}

void Fibers::turn(std::uint32_t tag) {
    note(tag);
    // While it is being unwound a body only wants to leave.
    if (given_up_) return;
    if (stopped_ || random_.one_in(switch_one_in_)) leave();
}

void Fibers::park(const std::atomic<std::uint32_t>& word) {
    if (word.load(std::memory_order_relaxed) == 0) return;
    fibers_[current_]->word = &word;
    leave();
}

Fibers::~Fibers() {
    given_up_ = true;
    for (std::size_t i = 0; i < fibers_.size(); ++i) {
        if (!fibers_[i]->over) resume(i);
        spare_stacks().push_back(std::move(fibers_[i]->stack));
    }
}

}  // namespace paceline::test
