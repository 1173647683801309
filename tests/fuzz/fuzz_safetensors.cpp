// Fuzzes the safetensors reader: the input is a file. What is accepted fills its data, tensor by
// tensor, and every byte that a tensor names can be read.
#include <string>

#include "model/weights/safetensors_file.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr const char* kTypes[] = {"F32", "F16", "BF16", "U8", "I32", "I64"};

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    constexpr std::uint32_t kBytes[] = {4, 2, 2, 1, 4, 8};
    std::string header = R"({"__metadata__":{"paceline.part":"draft"})";
    std::uint32_t at = 0;
    for (std::uint32_t i = random.below(4); i > 0; --i) {
        const std::uint32_t type = random.below(6);
        const std::uint32_t rows = random.below(4);
        const std::uint32_t cols = 1 + random.below(4);
        const std::uint32_t end = at + rows * cols * kBytes[type];
        header += ",\"t" + std::to_string(i) + R"(":{"dtype":")" + kTypes[type] + R"(","shape":[)" +
                  std::to_string(rows) + "," + std::to_string(cols) + R"(],"data_offsets":[)" +
                  std::to_string(at) + "," + std::to_string(end) + "]}";
        at = end;
    }
    header += "}";
    const std::uint64_t length = header.size();
    FuzzBytes input(sizeof length + header.size() + at);
    std::memcpy(input.data(), &length, sizeof length);
    std::memcpy(input.data() + sizeof length, header.data(), header.size());
    for (std::size_t i = input.size() - at; i < input.size(); ++i)
        input[i] = static_cast<std::uint8_t>(random.next());
    return input;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span{data, size});
    const Result<SafetensorsContents> read = read_safetensors(bytes, "fuzz");
    if (!read.ok()) {
        PACE_CHECK(read.error().code == Errc::BadFile, "another error than it promises");
        return 0;
    }
    std::size_t total = read.value().data_start;
    unsigned sum = 0;
    for (const StoredTensor& tensor : read.value().tensors) {
        std::size_t needed = bytes_of(tensor.type);
        for (const std::int64_t side : tensor.shape) needed *= static_cast<std::size_t>(side);
        PACE_CHECK(needed == tensor.bytes.size(), "bytes that do not fit the shape");
        total += needed;
        for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
    }
    PACE_CHECK(total == size && sum <= 255 * size, "data that no tensor names");
    return 0;
}
