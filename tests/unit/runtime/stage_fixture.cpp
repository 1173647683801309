// A stage that does what its assignment says: the process tests' child.
//
//   relay N          says hello, joins the pipeline and passes on to stage N
//   exit-on-load     ends with code 3 before it says hello, after a last line
//   abort-on-load    as a bug would
//   fail-on-load     reports an error in good order
//   hang-on-load     never says hello
//   hang-on-wire     says hello and then nothing
//   close-on-wire    says hello, closes its socket and stays
//   relay-loads-again N  relay, but each incarnation after the first loads for four seconds
//   relay-then-exit N  relay, and code 5 after ten messages
//   relay-and-offer N relay, but offers a link for a channel that has none after ten messages
//   relay-and-end N  relay, but tells the conductor to shut down after ten messages
//   relay-and-ask N  relay, and asks for a Begin after ten messages
//   relay-and-feign N the same, but in the name of another
//   fork-and-relay N relay with a grandchild that would outlive it
//   send-tensors N   passes each number on to stage N in a tensor on the fake device
//   read-tensors N   reads them and passes the numbers plus 1000 on to stage N
//   deaf-tensors N   as read-tensors, but its link never opens
//   say-cores        writes the cores it may use and ends
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "runtime/loop/stage_loop.hpp"
#include "runtime/loop/stage_process.hpp"
#include "runtime/parent/affinity.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/unit/runtime/tensor_actors.hpp"

using namespace paceline;

namespace {

[[noreturn]] void hang() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours{1});
}

/// Ends the process after some messages.
struct ShortLived : test::Relay {
    using Relay::Relay;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (++messages > 10) ::_exit(5);
        Relay::handle(from, kind, bytes);
    }
    int messages = 0;
};

/// Says what only the conductor may say.
struct Usurper : test::Relay {
    using Relay::Relay;
    void on_start(StageContext& context) override {
        Relay::on_start(context);
        own_context = &context;
    }
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (++messages == 10) own_context->post(kConductor, control::Shutdown{});
        Relay::handle(from, kind, bytes);
    }
    StageContext* own_context = nullptr;
    int messages = 0;
};

/// Offers what the channel does not want.
struct Offerer : test::Relay {
    using Relay::Relay;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (++messages == 10) {
            (void)process->offer(from, Epoch{1}, process->assignment().stage, LinkOffer{});
        }
        Relay::handle(from, kind, bytes);
    }
    static inline StageProcess* process = nullptr;
    int messages = 0;
};

/// Asks for a Begin, in its own name or in that of its sender.
struct Asker : test::Relay {
    using Relay::Relay;
    void handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) override {
        if (++messages == 10) {
            const StageId name = feigns ? from : process->assignment().stage;
            (void)process->send({name, kConductor}, control::BeginWanted{});
        }
        Relay::handle(from, kind, bytes);
    }
    static inline StageProcess* process = nullptr;
    static inline bool feigns = false;
    int messages = 0;
};

template <class ToyActor = test::Relay>
int relay(StageProcess& process, StageId to, TensorDevice* device = nullptr) {
    control::Hello hello;
    hello.role = "relay";
    hello.dim = to.value;
    Result<Wiring> wiring = process.introduce(std::move(hello));
    if (!wiring.ok()) return process.finish(wiring.error());
    ToyActor actor{to};
    StageLoop loop{std::move(wiring).value(), process, {.device = device}};
    loop.add(process.assignment().stage, actor);
    return process.finish(loop.run());
}

int with_device(StageProcess& process, const std::string& order, StageId to) {
    testing::FakeDevice device;
    device.may().may_open = order != "deaf-tensors";
    if (order == "send-tensors") return relay<test::TensorSender>(process, to, &device);
    return relay<test::TensorReader>(process, to, &device);
}

int act(StageProcess& process, const std::string& order, StageId to) {
    if (order == "relay") return relay(process, to);
    if (order == "relay-loads-again") {
        if (process.assignment().epoch != Epoch{1}) {
            std::fprintf(stderr, "loading again\n");
            std::this_thread::sleep_for(std::chrono::seconds{4});
        }
        return relay(process, to);
    }
    if (order == "relay-then-exit") return relay<ShortLived>(process, to);
    if (order.ends_with("-tensors")) return with_device(process, order, to);
    if (order == "relay-and-offer") {
        Offerer::process = &process;
        return relay<Offerer>(process, to);
    }
    if (order == "relay-and-ask" || order == "relay-and-feign") {
        Asker::process = &process;
        Asker::feigns = order == "relay-and-feign";
        return relay<Asker>(process, to);
    }
    if (order == "relay-and-end") return relay<Usurper>(process, to);
    if (order == "exit-on-load") {
        std::fprintf(stderr, "loading weights\nno such tensor: blk.0\n");
        return 3;
    }
    if (order == "abort-on-load") std::abort();
    if (order == "fail-on-load") {
        return process.finish(Error{Errc::BadFile, "model.gguf is truncated at byte 42"});
    }
    if (order == "hang-on-load") hang();
    if (order == "fork-and-relay") {
        if (::fork() == 0) hang();
        return relay(process, to);
    }
    if (order == "say-cores") {
        const Machine machine = read_machine().value();
        std::printf("cores %s\n", format_core_list(machine.allowed).c_str());
        return 0;
    }
    control::Hello hello;
    hello.wire_version = msg::kWireVersion;
    if (!process.send({process.assignment().stage, kConductor}, hello).ok()) return 4;
    if (order == "close-on-wire") ::close_range(3, ~0U, 0);
    hang();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3 || std::string{argv[1]} != kControlFdOption) return 64;
    auto process = StageProcess::join(std::atoi(argv[2]));
    if (!process.ok()) {
        std::fprintf(stderr, "%s\n", process.error().what.c_str());
        return 65;
    }
    const auto& payload = process.value()->assignment().payload;
    const std::string text{reinterpret_cast<const char*>(payload.data()), payload.size()};
    const std::size_t space = text.find(' ');
    const int to = space == std::string::npos ? 0 : std::atoi(text.c_str() + space);
    return act(*process.value(), text.substr(0, space), StageId{static_cast<std::uint16_t>(to)});
}
