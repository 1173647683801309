// What grammar helpers and their parent say to each other.
#include "launch/grammar/helper_frames.hpp"

#include <random>
#include <sys/socket.h>

#include <doctest/doctest.h>

#include "ipc/transport/owned_fd.hpp"

#include "small_vocabulary.hpp"

namespace paceline {
namespace {

TEST_CASE("tasks, grammars and replies are read as they were written") {
    HelperTask task{{std::chrono::milliseconds{250}, 77}, small_vocabulary()};
    const Result<HelperTask> read = decode_task(encode_task(task));
    REQUIRE(read.ok());
    CHECK(read.value().limits.processor_time == task.limits.processor_time);
    CHECK(read.value().limits.memory_bytes == 77);
    CHECK(read.value().vocabulary.texts == task.vocabulary.texts);
    CHECK(read.value().vocabulary.control == task.vocabulary.control);
    CHECK(read.value().vocabulary.vocab_size == task.vocabulary.vocab_size);
    const GrammarSpec spec{GrammarKind::Ebnf, std::string{"a\0b", 3}};
    REQUIRE(decode_spec(encode_spec(spec)).ok());
    CHECK(decode_spec(encode_spec(spec)).value() == spec);
    const auto compiled = std::make_shared<const CompiledGrammar>(CompiledGrammar{"7", "bytes"});
    const auto reply = decode_reply(encode_reply(CompiledGrammarPtr{compiled}), "7");
    REQUIRE(reply.ok());
    CHECK(reply.value()->bytes == "bytes");
    const auto refused = decode_reply(encode_reply(Error{Errc::BadArgument, "no"}), "7");
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::BadArgument);
    CHECK(refused.error().what == "no");
}

TEST_CASE("a torn or changed frame is refused or read, and never more") {
    const std::string task = encode_task({{}, small_vocabulary()});
    for (std::size_t size = 0; size < task.size(); ++size)
        CHECK_FALSE(decode_task(task.substr(0, size)).ok());
    CHECK_FALSE(decode_task(task + "x").ok());
    const std::string spec = encode_spec({GrammarKind::Regex, "abc"});
    for (std::size_t size = 0; size < spec.size(); ++size)
        CHECK_FALSE(decode_spec(spec.substr(0, size)).ok());
    std::mt19937 random{1};
    for (int i = 0; i < 20'000; ++i) {
        std::string changed = i % 2 == 0 ? task : spec;
        for (int n = 0; n < 3; ++n)
            changed[random() % changed.size()] = static_cast<char>(random());
        (void)decode_task(changed);
        (void)decode_spec(changed);
        (void)decode_reply(changed, "7");
    }
}

TEST_CASE("frames pass a socket whole, one that is too long or unfinished does not") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    OwnedFd first{ends[0]};
    const OwnedFd second{ends[1]};
    REQUIRE(write_frame(first.get(), "one"));
    REQUIRE(write_frame(first.get(), ""));
    CHECK(read_frame(second.get(), 100) == "one");
    CHECK(read_frame(second.get(), 100) == "");
    CHECK_FALSE(read_frame(second.get(), 100, std::chrono::milliseconds{1}).has_value());
    REQUIRE(write_frame(first.get(), "longer"));
    CHECK_FALSE(read_frame(second.get(), 5).has_value());
    first.reset();
    CHECK_FALSE(write_frame(second.get(), "not read"));
}

}  // namespace
}  // namespace paceline
