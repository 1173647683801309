#include "runtime/parent/spawn.hpp"

#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/wire/cancel_board.hpp"
#include "runtime/observe/stage_telemetry.hpp"
#include "runtime/parent/affinity.hpp"

using namespace paceline;
namespace control = paceline::control;

namespace {

std::string read_all(int fd) {
    std::string text;
    char buffer[512];
    for (int i = 0; i < 500; ++i) {
        const ssize_t count = ::read(fd, buffer, sizeof buffer);
        if (count == 0) break;
        if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
        if (count < 0) ::usleep(10'000);
    }
    return text;
}

/// The memory that comes with every assignment.
struct Memory {
    ShmFile telemetry = StageTelemetry::create(StageId{1}, Epoch{1}, "s", 0).value();
    ShmFile board = CancelBoard::create().value();
    [[nodiscard]] std::vector<int> files() const { return {telemetry.fd(), board.fd()}; }
};

control::Assign order(std::string_view text) {
    control::Assign assign;
    assign.stage = StageId{1};
    assign.actors = {StageId{1}};
    assign.payload.resize(text.size());
    std::memcpy(assign.payload.data(), text.data(), text.size());
    return assign;
}

ProcessSpec process(std::string name, std::vector<int> cores = {}) {
    return {.id = StageId{1}, .name = std::move(name), .cores = std::move(cores)};
}

}  // namespace

TEST_CASE("a stage runs on its cores from its first instruction, in a group of its own") {
    const int core = read_machine().value().allowed.back();
    Spawned child = spawn_stage(process("s", {core}), {PACELINE_STAGE_FIXTURE}).value();
    CHECK(::getpgid(child.pid) == child.pid);
    const Memory memory;
    REQUIRE(child.control.send(order("say-cores"), memory.files()).ok());
    CHECK(read_all(child.output.get()) == "cores " + std::to_string(core) + "\n");
    int status = -1;
    CHECK(::waitpid(child.pid, &status, 0) == child.pid);
    CHECK(status == 0);
}

TEST_CASE("a stage that cannot be started is an error that says why, and no zombie") {
    const Result<Spawned> missing = spawn_stage(process("draft"), {"/nonexistent/paceline"});
    REQUIRE_FALSE(missing.ok());
    CHECK(missing.error().what.find("stage 'draft': execv failed: No such file") !=
          std::string::npos);
    const Result<Spawned> core = spawn_stage(process("draft", {4000}), {PACELINE_STAGE_FIXTURE});
    REQUIRE_FALSE(core.ok());
    CHECK(core.error().what.find("stage 'draft': core 4000 does not exist") == 0);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // there are no children
}

namespace {
bool children_hang = false;  // between fork and exec
}  // namespace

TEST_CASE("a stage whose process never comes to run its command is an error, not a wait for ever") {
    REQUIRE(::pthread_atfork(nullptr, nullptr, [] {
                while (children_hang) ::pause();
            }) == 0);
    children_hang = true;
    const Result<Spawned> started =
        spawn_stage(process("draft"), {PACELINE_STAGE_FIXTURE}, std::chrono::milliseconds{100});
    children_hang = false;
    REQUIRE_FALSE(started.ok());
    CHECK(started.error().what ==
          "cannot start stage 'draft': its process did not begin to run the command within 100 ms");
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // there are no children
}

TEST_CASE("a stage dies with its parent, however that one dies") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t parent = ::fork();
    if (parent == 0) {
        Spawned child = spawn_stage(process("s"), {PACELINE_STAGE_FIXTURE}).value();
        const Memory memory;
        (void)child.control.send(order("hang-on-load"), memory.files());
        (void)::write(ends[1], &child.pid, sizeof child.pid);
        for (;;) ::pause();
    }
    pid_t stage = 0;
    REQUIRE(::read(ends[0], &stage, sizeof stage) == sizeof stage);
    CHECK(::kill(stage, 0) == 0);
    ::kill(parent, SIGKILL);
    ::waitpid(parent, nullptr, 0);
    const std::string stat = "/proc/" + std::to_string(stage) + "/stat";
    bool alive = true;
    for (int i = 0; alive && i < 100; ++i) {  // a zombie of another parent is dead enough
        std::FILE* file = std::fopen(stat.c_str(), "r");
        char state = 'X';
        if (file != nullptr) {
            if (std::fscanf(file, "%*d %*s %c", &state) != 1) state = 'X';
            std::fclose(file);
        }
        alive = state != 'X' && state != 'Z';
        if (alive) ::usleep(10'000);
    }
    CHECK_FALSE(alive);
    (void)::waitpid(stage, nullptr,
                    0);  // it is a child here if an earlier test made this a subreaper
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST_CASE("how a process ended is put into words") {
    CHECK(describe_exit(CLD_EXITED, 3) == "exited with code 3");
    CHECK(describe_exit(CLD_KILLED, 9) == "was killed by signal 9 (Killed)");
    CHECK(describe_exit(CLD_DUMPED, 6) == "was killed by signal 6 (Aborted), core dumped");
}
