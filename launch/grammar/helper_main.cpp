#include "launch/grammar/helper_main.hpp"

#include <cstdint>
#include <fmt/core.h>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "launch/base/exit_codes.hpp"
#include "launch/grammar/helper_frames.hpp"

namespace paceline {
namespace {

constexpr int kLessPriority = 5;  // than decoding

std::uint64_t own_address_space() {
    std::uint64_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void set_limit(decltype(RLIMIT_AS) what, rlim_t value) {
    const rlimit both{value, value};
    (void)::setrlimit(what, &both);
}

/// Processor time from now on; 0: no limit.
void start_timer(std::chrono::milliseconds time) {
    const itimerval timer{{0, 0}, {time.count() / 1000, time.count() % 1000 * 1000}};
    (void)::setitimer(ITIMER_PROF, &timer, nullptr);
}

Result<CompiledGrammarPtr> within_limits(GrammarCompiler& compiler,
                                         const GrammarSpec& spec,
                                         const GrammarLimits& limits) {
    start_timer(limits.processor_time);
    Result<CompiledGrammarPtr> made = compiler.compile(spec);
    start_timer(std::chrono::milliseconds{0});
    if (made.ok() || made.error().code != Errc::OutOfMemory) return made;
    return Error{Errc::BadArgument,
                 fmt::format("the grammar takes more than {} MiB of memory to compile, "
                             "which is the limit",
                             limits.memory_bytes >> 20)};
}

}  // namespace

int grammar_helper_main(int fd) {
    constexpr std::size_t kTaskBytesMax = std::size_t{256} << 20;
    const std::optional<std::string> frame = read_frame(fd, kTaskBytesMax);
    if (!frame) return kExitFailure;
    Result<HelperTask> task = decode_task(*frame);
    if (!task) return kExitFailure;
    const GrammarLimits limits = task.value().limits;
    (void)::setpriority(PRIO_PROCESS, 0, kLessPriority);
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_AS, own_address_space() + limits.memory_bytes);
    const auto compiler = make_grammar_compiler(std::move(task.value().vocabulary));
    while (const std::optional<std::string> asked = read_frame(fd, kGrammarTextMax + 64)) {
        const Result<GrammarSpec> spec = decode_spec(*asked);
        if (!spec) return kExitFailure;
        if (!write_frame(fd, encode_reply(within_limits(*compiler, spec.value(), limits)))) break;
    }
    return kExitOk;
}

}  // namespace paceline
