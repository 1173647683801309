#include "link_fixture.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <sys/socket.h>
#include <utility>

#include <doctest/doctest.h>

namespace paceline::test {
namespace {

struct Message {
    std::uint32_t tensor;
    std::uint32_t index;
    std::uint64_t bytes;
};

std::vector<std::byte> content(std::uint32_t tensor, std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    std::uint32_t word = tensor * 2654435761U + 1;
    for (std::byte& to : made) {
        word = word * 1664525U + 1013904223U;
        to = static_cast<std::byte>(word >> 24U);
    }
    return made;
}

void put(int line, const Message& message) {
    (void)::send(line, &message, sizeof(message), MSG_NOSIGNAL);
}

std::optional<Message> get(int line) {
    Message message{};
    if (::recv(line, &message, sizeof(message), MSG_DONTWAIT) != sizeof(message)) return {};
    return message;
}

std::string problem_of(TensorLink& link, const char* otherwise) {
    Result<LinkState> state = link.poll();
    return state ? otherwise : state.error().what;
}

}  // namespace

LinkSpec spec_of(const Plan& plan) {
    return {
        .name = "first -> second", .slots = plan.slots, .slot_bytes = plan.slot_bytes, .wake = {}};
}

std::size_t bytes_of(const Plan& plan, std::uint32_t tensor) {
    const std::size_t most = plan.slot_bytes;
    const std::array<std::size_t, 6> sizes = {most, 1, 8, most / 2 + 3, 257, most - 1};
    return std::min(sizes[tensor % sizes.size()], most);
}

Device::Device(int number) {
    Result<std::unique_ptr<TensorDevice>> made = make_tensor_device(number);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().what));
    links = std::move(made).value();
    driver = std::move(open_driver(number).value());
    REQUIRE(driver->enter().ok());
}

bool until(const std::function<bool()>& what, std::chrono::milliseconds limit) {
    const Clock::time_point end = Clock::now() + limit;
    while (!what()) {
        if (Clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    return true;
}

std::string opened(TensorLink& link) {
    const bool done = until([&] {
        Result<LinkState> state = link.poll();
        return !state || state.value() == LinkState::Open;
    });
    return problem_of(link, done ? "" : "the link does not open");
}

Error error_of(TensorLink& link, std::chrono::milliseconds limit) {
    (void)until([&] { return !link.poll().ok(); }, limit);
    Result<LinkState> state = link.poll();
    return state ? Error{Errc::Cancelled, "no error"} : state.error();
}

Line::Line() {
    int pair[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    consumer.reset(pair[0]);
    producer.reset(pair[1]);
}

std::string produce(OutLink& link, Driver& driver, int line, const Plan& plan) {
    if (Status entered = driver.enter(); !entered) return entered.error().what;
    if (std::string problem = opened(link); !problem.empty()) return problem;
    std::vector<bool> free(plan.slots, true);
    const auto take_back = [&] {
        while (const std::optional<Message> back = get(line)) free[back->index] = true;
    };
    for (std::uint32_t tensor = 0; tensor < plan.tensors; ++tensor) {
        std::uint32_t index = 0;
        const bool had = until([&] {
            take_back();
            for (index = 0; index < plan.slots; ++index) {
                if (free[index] && link.reusable(index)) return true;
            }
            return !link.poll().ok();
        });
        if (!had || !link.poll().ok()) return problem_of(link, "no slot becomes free");
        free[index] = false;
        const std::vector<std::byte> bytes = content(tensor, bytes_of(plan, tensor));
        if (Status put_there = driver.write(link.slot(index), bytes.data(), bytes.size());
            !put_there) {
            return put_there.error().what;
        }
        put(line, {tensor, index, bytes.size()});
        link.send(index, bytes.size());
    }
    const bool all_back = until([&] {
        take_back();
        return std::find(free.begin(), free.end(), false) == free.end() || !link.poll().ok();
    });
    return all_back ? problem_of(link, "") : "slots do not come back";
}

std::string consume(InLink& link, Driver& driver, int line, const Plan& plan) {
    if (Status entered = driver.enter(); !entered) return entered.error().what;
    if (std::string problem = opened(link); !problem.empty()) return problem;
    std::deque<Message> announced;
    for (std::uint32_t tensor = 0; tensor < plan.tensors; ++tensor) {
        const bool there = until([&] {
            while (const std::optional<Message> message = get(line)) {
                link.expect(message->index, message->bytes);
                announced.push_back(*message);
            }
            if (!announced.empty() && link.arrived(announced.front().index)) return true;
            return !link.poll().ok();
        });
        if (!there || !link.poll().ok()) return problem_of(link, "a tensor does not arrive");
        const Message message = announced.front();
        announced.pop_front();
        std::vector<std::byte> got(message.bytes);
        if (Status had = driver.read(got.data(), link.slot(message.index), got.size()); !had) {
            return had.error().what;
        }
        if (message.tensor != tensor || got != content(tensor, bytes_of(plan, tensor))) {
            return fmt::format("tensor {} of {} bytes is not what was sent", tensor, got.size());
        }
        put(line, message);
    }
    return "";
}

std::string run_both(
    InLink& in, Driver& in_driver, OutLink& out, Driver& out_driver, const Plan& plan) {
    const Line line;
    std::string produced;
    std::thread producer{[&] { produced = produce(out, out_driver, line.producer.get(), plan); }};
    const std::string consumed = consume(in, in_driver, line.consumer.get(), plan);
    producer.join();
    return consumed.empty() ? produced : consumed + "; " + produced;
}

int descriptors() {
    const std::filesystem::directory_iterator all{"/proc/self/fd"};
    return static_cast<int>(std::distance(all, std::filesystem::directory_iterator{}));
}

}  // namespace paceline::test
