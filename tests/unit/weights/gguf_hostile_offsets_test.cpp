// Tensor offsets that point elsewhere: past the end, into each other, between two alignments.
#include <limits>

#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
constexpr const char* kVictim = "blk.1.attn_k.weight";

Bytes with_offset(std::uint64_t offset) {
    GgufBuilder builder = tiny_model();
    builder.tensor(kVictim).claimed_offset = offset;
    return builder.bytes();
}

TEST_CASE("a tensor that begins or ends after the file is refused (CVE-2026-7482)") {
    const std::uint64_t file_bytes = tiny_model().bytes().size();
    const std::uint64_t aligned_end = file_bytes / 32 * 32;
    for (const std::uint64_t offset : {aligned_end, aligned_end + 32, std::uint64_t{1} << 40U}) {
        expect_refused(with_offset(offset), Errc::BadFile, {kVictim, std::to_string(offset)});
    }
    GgufBuilder builder = tiny_model();
    BuiltTensor& last = builder.tensors.back();
    const std::uint64_t size = last.data.size();
    last.data.resize(size - 1);  // begins inside, ends one byte after
    expect_refused(builder.bytes(), Errc::BadFile,
                   {last.name, "does not fit the file", std::to_string(size)});
}

TEST_CASE("an offset so large that adding the size wraps is refused") {
    for (const std::uint64_t offset : {kHuge - 31, kHuge - 63, std::uint64_t{1} << 63U}) {
        expect_refused(with_offset(offset), Errc::BadFile, {kVictim, std::to_string(offset)});
    }
}

TEST_CASE("an offset between two alignments is refused") {
    for (const std::uint64_t offset : {1U, 4U, 16U, 31U}) {
        expect_refused(with_offset(offset), Errc::BadFile,
                       {kVictim, "multiple of the alignment 32"});
    }
}

TEST_CASE("tensors that share bytes are refused, both named") {
    expect_refused(with_offset(0), Errc::BadFile, {kVictim, "token_embd.weight", "overlap"});
    GgufBuilder builder = tiny_model();
    builder.tensors[2].claimed_offset = 32;  // inside the embedding, which is first
    expect_refused(builder.bytes(), Errc::BadFile, {builder.tensors[2].name, "overlap"});
    builder = tiny_model();
    builder.tensors[1].claimed_offset = builder.tensors[0].data.size() - 32;  // the last 32 bytes
    expect_refused(builder.bytes(), Errc::BadFile, {builder.tensors[1].name, "overlap"});
}

TEST_CASE("a gap between tensors is allowed") {
    GgufBuilder builder = tiny_model();
    builder.tensors[0].data.resize(builder.tensors[0].data.size() + 320);
    CHECK(read_bytes(builder.bytes()).ok());
}

TEST_CASE("a header without room for its data is refused") {
    GgufBuilder builder = tiny_model();
    for (BuiltTensor& tensor : builder.tensors) tensor.data.clear();
    CHECK_FALSE(read_bytes(builder.bytes()).ok());
}

TEST_CASE("an alignment of another type, or none that can be used, is refused") {
    GgufBuilder builder = tiny_model();
    builder.set_text("general.alignment", "32");
    expect_refused(builder.bytes(), Errc::BadFile, {"general.alignment", "string"});
    builder.set_u64("general.alignment", 32);
    expect_refused(builder.bytes(), Errc::BadFile, {"general.alignment", "uint64"});
    for (const std::uint32_t alignment :
         {0U, 1U, 4U, 24U, 33U, 131'072U, 0x80000000U, 0xFFFFFFFFU}) {
        builder.set_u32("general.alignment", alignment);
        expect_refused(builder.bytes(), Errc::BadFile,
                       {"general.alignment", std::to_string(alignment)});
    }
}

TEST_CASE("other alignments that the format allows are read") {
    for (const std::uint32_t alignment : {8U, 64U, 4096U, 65'536U}) {
        GgufBuilder builder = tiny_model();
        builder.alignment = alignment;
        builder.set_u32("general.alignment", alignment);
        CHECK(read_bytes(builder.bytes()).ok());
    }
}

}  // namespace
}  // namespace paceline
