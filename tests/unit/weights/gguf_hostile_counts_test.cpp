// Counts and lengths that lie: each once made a reader multiply past 2^64, allocate little and
// write much. Here the bytes that are really there bound every count first.
#include <limits>

#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

TEST_CASE("a key count that the file cannot hold is refused (CVE-2024-23605 and its kin)") {
    GgufBuilder builder = tiny_model();
    for (const std::uint64_t count :
         {kHuge, kHuge / 48 + 1, std::uint64_t{1} << 32U, std::uint64_t{65'537}}) {
        builder.claimed_keys = count;
        expect_refused(builder.bytes(), Errc::BadFile, {"key count", std::to_string(count)});
    }
}

TEST_CASE("a tensor count that the file cannot hold is refused (CVE-2024-21836 and its kin)") {
    GgufBuilder builder = tiny_model();
    for (const std::uint64_t count :
         {kHuge, kHuge / 80 + 1, std::uint64_t{1} << 63U, std::uint64_t{65'537}}) {
        builder.claimed_tensors = count;
        expect_refused(builder.bytes(), Errc::BadFile, {"tensor count", std::to_string(count)});
    }
}

TEST_CASE("a count below the limit but above the file's size is refused at once") {
    GgufBuilder builder = tiny_model(smallest_model());
    const std::uint64_t more_than_fit = builder.bytes().size() / 14 + 1;
    builder.claimed_keys = more_than_fit;
    expect_refused(builder.bytes(), Errc::BadFile, {"key count"});
}

TEST_CASE("one key or tensor more than there are ends in what follows, not in a crash") {
    GgufBuilder builder = tiny_model();
    builder.claimed_tensors = builder.tensors.size() + 1;
    CHECK_FALSE(read_bytes(builder.bytes()).ok());
    builder.claimed_tensors.reset();
    builder.claimed_keys = builder.keys.size() + 1;
    CHECK_FALSE(read_bytes(builder.bytes()).ok());
}

TEST_CASE("no tensors at all is an error, not an empty model") {
    GgufBuilder builder = tiny_model();
    builder.tensors.clear();
    expect_refused(builder.bytes(), Errc::BadFile, {"no tensors"});
}

TEST_CASE("a string longer than the file is refused before it is allocated (CVE-2024-23496)") {
    GgufBuilder builder = tiny_model();
    for (const std::uint64_t length :
         {kHuge, kHuge - 7, std::uint64_t{1} << 30U, std::uint64_t{1} << 40U}) {
        Bytes raw;
        append(raw, length);
        append_raw(raw, "short");
        builder.set("general.name", 8, raw);
        expect_refused(builder.bytes(), Errc::BadFile, {"general.name", std::to_string(length)});
    }
}

TEST_CASE("a string of a permitted length that the file does not have is refused") {
    GgufBuilder builder = tiny_model(smallest_model());
    Bytes raw;
    append<std::uint64_t>(raw, 1'000'000);
    builder.set("general.name", 8, raw);
    expect_refused(builder.bytes(), Errc::BadFile,
                   {"truncated", "general.name", "needs 1000000 bytes", "are left"});
}

TEST_CASE("a key's name longer than the file is refused") {
    GgufBuilder builder = tiny_model();
    Bytes bytes = builder.bytes();
    const std::uint64_t length = kHuge - 31;
    std::memcpy(bytes.data() + 24, &length, sizeof length);  // the first key's length
    expect_refused(bytes, Errc::BadFile, {"key 0", std::to_string(length)});
}

TEST_CASE("a tensor's name longer than 64 bytes is refused, whatever it claims") {
    GgufBuilder builder = tiny_model();
    for (const std::uint64_t length : {std::uint64_t{65}, kHuge}) {
        builder.tensors[0].claimed_name_length = length;
        expect_refused(builder.bytes(), Errc::BadFile, {"a tensor's name", std::to_string(length)});
    }
}

TEST_CASE("an array whose count times its element size wraps is refused (CVE-2024-21825)") {
    GgufBuilder builder = tiny_model();
    for (const std::uint32_t element : {0U, 5U, 8U, 10U, 12U}) {
        for (const std::uint64_t count :
             {kHuge, (kHuge / 8) + 1, (kHuge / 4) + 1, std::uint64_t{1} << 40U}) {
            Bytes raw;
            append(raw, element);
            append(raw, count);
            append<std::uint64_t>(raw, 0);
            builder.set("some.array", 9, raw);
            expect_refused(builder.bytes(), Errc::BadFile, {"some.array", std::to_string(count)});
        }
    }
}

TEST_CASE("an array of strings that ends before its count is refused (CVE-2024-21802)") {
    GgufBuilder builder = tiny_model();
    Bytes raw;
    append<std::uint32_t>(raw, 8);
    append<std::uint64_t>(raw, 500);
    append_text(raw, "one");
    builder.set("tokenizer.ggml.merges", 9, raw);
    CHECK_FALSE(read_bytes(builder.bytes()).ok());
}

TEST_CASE("more dimensions than four, or none, are refused") {
    GgufBuilder builder = tiny_model();
    for (const std::uint32_t count : {0U, 5U, 0x40000000U, 0xFFFFFFFFU}) {
        builder.tensors[1].claimed_dim_count = count;
        expect_refused(builder.bytes(), Errc::BadFile,
                       {builder.tensors[1].name, std::to_string(count), "dimensions"});
    }
}

TEST_CASE("a dimension of zero is refused") {
    GgufBuilder builder = tiny_model();
    builder.tensors[1].dims = {0};
    expect_refused(builder.bytes(), Errc::BadFile, {builder.tensors[1].name, "is 0"});
    builder.tensors[1].dims = {32, 0};
    expect_refused(builder.bytes(), Errc::BadFile, {builder.tensors[1].name, "is 0"});
}

}  // namespace
}  // namespace paceline
