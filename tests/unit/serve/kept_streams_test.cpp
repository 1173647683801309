#include "launch/serve/kept_streams.hpp"

#include <doctest/doctest.h>

namespace paceline::serve {
namespace {

using Clock = KeptStreams::Clock;

constexpr std::chrono::milliseconds kKeep{1000};

/// Streams without a pipeline: what was cancelled is counted.
struct Fixture {
    explicit Fixture(std::size_t streams = 8, std::size_t bytes = std::size_t{1} << 20U)
        : kept{{.keep = kKeep, .streams = streams, .bytes = bytes}} {}

    std::shared_ptr<AnswerStream> add(const std::string& id, const std::string& owner = {}) {
        auto answer = std::make_shared<AnswerStream>();
        kept.add(
            id,
            {.owner = owner, .answer = answer, .cancel = [this, id] { cancelled.push_back(id); }},
            now);
        return answer;
    }
    void pass(std::chrono::milliseconds time) {
        now += time;
        kept.sweep(now);
    }

    std::vector<std::string> cancelled;
    Clock::time_point now{};
    KeptStreams kept;
};

TEST_CASE("kept streams: a stream that is read stays, however long it takes") {
    Fixture f;
    f.add("a");
    f.kept.begin_reading("a");
    f.pass(kKeep * 10);
    CHECK(f.kept.find("a", {}) != nullptr);
    f.kept.end_reading("a", f.now);
    f.pass(kKeep / 2);
    CHECK(f.kept.find("a", {}) != nullptr);
    CHECK(f.cancelled.empty());
}

TEST_CASE("kept streams: one that is unread for too long is forgotten, and its answer cancelled") {
    Fixture f;
    f.add("a");
    f.add("b")->end({}, {}, {});
    f.pass(kKeep - std::chrono::milliseconds{1});
    CHECK(f.kept.size() == 2);
    f.pass(std::chrono::milliseconds{1});
    CHECK(f.kept.size() == 0);
    CHECK(f.kept.find("a", {}) == nullptr);
    CHECK(f.cancelled == std::vector<std::string>{"a"});  // b had ended
}

TEST_CASE("kept streams: a client that comes back begins the time anew") {
    Fixture f;
    f.add("a");
    for (int i = 0; i < 5; ++i) {
        f.pass(kKeep * 3 / 4);
        f.kept.begin_reading("a");
        f.kept.end_reading("a", f.now);
    }
    CHECK(f.kept.size() == 1);
}

TEST_CASE("kept streams: of two readers the last one begins the time") {
    Fixture f;
    f.add("a");
    f.kept.begin_reading("a");
    f.kept.begin_reading("a");
    f.kept.end_reading("a", f.now);
    f.pass(kKeep * 2);
    CHECK(f.kept.size() == 1);
    f.kept.end_reading("a", f.now);
    f.pass(kKeep);
    CHECK(f.kept.size() == 0);
}

TEST_CASE("kept streams: a stream is found by the key of its request alone") {
    Fixture f;
    f.add("a", "one");
    CHECK(f.kept.find("a", "one") != nullptr);
    CHECK(f.kept.find("a", "two") == nullptr);
    CHECK(f.kept.find("a", {}) == nullptr);
    CHECK(f.kept.find("b", "one") == nullptr);
}

TEST_CASE("kept streams: beyond their number the one unread for the longest time is forgotten") {
    Fixture f{2};
    for (const char* id : {"a", "b", "c"}) {
        f.add(id);
        f.pass(std::chrono::milliseconds{1});
    }
    CHECK(f.kept.size() == 2);
    CHECK(f.cancelled == std::vector<std::string>{"a"});
    // What is read does not count.
    f.kept.begin_reading("b");
    f.add("d");
    f.pass(std::chrono::milliseconds{1});
    CHECK(f.kept.size() == 3);
    CHECK(f.kept.find("b", {}) != nullptr);
}

TEST_CASE("kept streams: their bytes are bounded while answers grow") {
    Fixture f{8, std::size_t{64} << 10U};
    const auto grows = f.add("a");
    f.pass(std::chrono::milliseconds{1});
    f.add("b");
    f.pass(std::chrono::milliseconds{1});
    CHECK(f.kept.size() == 2);
    for (TokenId token = 0; token < 10'000; ++token) grows->append(token, "text ");
    f.pass(std::chrono::milliseconds{1});
    CHECK(f.cancelled == std::vector<std::string>{"a"});
    CHECK(f.kept.find("b", {}) != nullptr);
}

TEST_CASE("kept streams: IDs are long and do not repeat") {
    const std::string id = random_stream_id();
    CHECK(id.size() == 32);
    CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(id != random_stream_id());
}

}  // namespace
}  // namespace paceline::serve
