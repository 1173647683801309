// The safetensors reader: what a file says is found again; every lie is refused by name.
#include <doctest/doctest.h>

#include "model/weights/safetensors_file.hpp"
#include "tests/support/contains.hpp"
#include "tests/unit/weights/expectations.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file
using testing::contains;

SafetensorsBuilder small_file() {
    SafetensorsBuilder file;
    file.metadata = {{"who", "a test"}};
    file.add_values<float>("a", "F32", {2, 3}, {1, 2, 3, 4, 5, 6});
    file.add_values<std::int32_t>("b", "I32", {2}, {7, 8});
    file.add_values<std::uint8_t>("none", "U8", {0, 5}, {});
    return file;
}

/// Whether the bytes are accepted; then all that the views name is read.
bool accepted(std::span<const std::byte> bytes) {
    const ExactBytes exact(bytes);
    const Result<SafetensorsContents> read = read_safetensors(exact.span(), "x.safetensors");
    if (!read) {
        CHECK(read.error().code == Errc::BadFile);
        CHECK(read.error().what.find("x.safetensors") == 0);
        return false;
    }
    unsigned sum = 0;
    for (const StoredTensor& tensor : read.value().tensors) {
        for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
    }
    return sum != 1'000'000'000;
}

std::string refusal(const std::string& header, std::size_t data_bytes = 8) {
    const std::vector<std::byte> data(data_bytes);
    const std::vector<std::byte> bytes = safetensors_bytes(header, data);
    const Result<SafetensorsContents> read = read_safetensors(bytes, "x.safetensors");
    REQUIRE_MESSAGE(!read.ok(), header);
    return read.error().what;
}

TEST_CASE("tensors and metadata are found as they were written") {
    const std::vector<std::byte> bytes = small_file().bytes();
    const Result<SafetensorsContents> read = read_safetensors(bytes, "x.safetensors");
    if (!read) FAIL(read.error().what);
    const SafetensorsContents& contents = read.value();
    CHECK(contents.metadata.at("who") == "a test");
    REQUIRE(contents.tensors.size() == 3);
    const StoredTensor& a = contents.tensors[0];
    CHECK(a.name == "a");
    CHECK(a.type == SafetensorsType::F32);
    CHECK(a.shape == std::vector<std::int64_t>{2, 3});
    float last = 0;
    std::memcpy(&last, a.bytes.data() + 20, sizeof last);
    CHECK(last == 6.0F);
    CHECK(describe(a) == "\"a\" (F32 [2, 3])");
    CHECK(contents.data_start + 32 == bytes.size());
}

TEST_CASE("metadata that are null are as if absent") {
    const std::string tensor = R"("t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    const std::vector<std::byte> bytes =
        safetensors_bytes(R"({"__metadata__":null,)" + tensor, std::vector<std::byte>(8));
    const Result<SafetensorsContents> read = read_safetensors(bytes, "x.safetensors");
    if (!read) FAIL(read.error().what);
    CHECK(read.value().metadata.empty());
    CHECK(read.value().tensors.size() == 1);
}

TEST_CASE("what a header must not say is refused, with the field and its value") {
    const auto tensor = [](const std::string& dtype, const std::string& shape,
                           const std::string& offsets) {
        return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
               offsets + "}}";
    };
    CHECK(
        accepted(safetensors_bytes(tensor("\"F32\"", "[2]", "[0,8]"), std::vector<std::byte>(8))));
    const std::pair<std::string, const char*> cases[] = {
        {"{", "is not JSON"},
        {"[1]", "is not a JSON object"},
        {R"({"t":{},"t":{}})", "has the key \"t\" twice"},
        {R"({"__metadata__":{"a":"1","a":"2"}})", "has the key \"a\" twice"},
        {R"({"__metadata__":{"a":1}})", "metadata \"a\" is not a string"},
        {R"({"__metadata__":3})", "__metadata__ is not an object"},
        {R"({"t":{"a":[[[1]]]}})", "nested deeper"},
        {R"({"t":[]})", "tensor \"t\" is not described"},
        {R"({"t":{"dtype":"F32","shape":[2]}})", "tensor \"t\" is not described"},
        {tensor("\"Q8_0\"", "[2]", "[0,8]"), "unknown dtype \"Q8_0\""},
        {tensor("7", "[2]", "[0,8]"), "unknown dtype \"7\""},
        {tensor("\"F32\"", "2", "[0,8]"), "has a shape that is not a list"},
        {tensor("\"F32\"", "[-2]", "[0,8]"), "has the size \"-2\""},
        {tensor("\"F32\"", "[2.0]", "[0,8]"), "has the size \"2.0\""},
        {tensor("\"F32\"", "[18446744073709551615]", "[0,8]"), "has the size"},
        {tensor("\"F32\"", "[4294967296,4294967296]", "[0,8]"), "needs more than 2^64 bytes"},
        {tensor("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "has 9 dimensions"},
        {tensor("\"F32\"", "[3]", "[0,8]"), "needs 12 bytes, its data_offsets span 8"},
        {tensor("\"F32\"", "[3]", "[0,12]"), "at bytes 0 to 12 of the data, which have 8"},
        {tensor("\"F32\"", "[2]", "[8,0]"), "at bytes 8 to 0"},
        {tensor("\"F32\"", "[2]", "[0]"), "data_offsets that are not two numbers"},
        {tensor("\"F32\"", "[1]", "[0,4]"), "has 8 bytes of data, its tensors fill 4"},
        {tensor("\"F32\"", "[1]", "[4,8]"), "begins at byte 4 of the data"},
        {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
         "tensor \"b\" begins at byte 4 of the data, the one before it ends at 8"},
        {R"({"\u001b[31m":1})", "\\x1b[31m"},
    };
    for (const auto& [header, what] : cases) {
        CAPTURE(header);
        const std::string said = refusal(header);
        CAPTURE(said);
        CHECK(contains(said, what));
    }
}

TEST_CASE("a header that claims more than there is, or more than any header has, is refused") {
    std::vector<std::byte> bytes = small_file().bytes();
    for (const std::uint64_t length : {std::uint64_t{bytes.size()}, ~std::uint64_t{0},
                                       std::uint64_t{1} << 40U, std::uint64_t{bytes.size() - 7}}) {
        std::memcpy(bytes.data(), &length, sizeof length);
        CHECK(!accepted(bytes));
    }
}

TEST_CASE("a safetensors file cut off at any byte is an error") {
    const std::vector<std::byte> whole = small_file().bytes();
    REQUIRE(accepted(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        CHECK(!accepted(std::span{whole}.first(size)));
    }
}

TEST_CASE("bytes changed anywhere never crash the safetensors reader") {
    const std::vector<std::byte> whole = small_file().bytes();
    detail::Random random(6);
    int survivors = 0;
    constexpr int kMutants = 5000;
    for (int i = 0; i < kMutants; ++i) {
        std::vector<std::byte> mutant = whole;
        for (std::uint32_t c = 1 + random.bits() % 3; c > 0; --c)
            mutant[random.bits() % mutant.size()] = static_cast<std::byte>(random.bits() & 0xFFU);
        survivors += accepted(mutant) ? 1 : 0;
    }
    CHECK(survivors > 0);
    CHECK(survivors < kMutants);
}

}  // namespace
}  // namespace paceline
