#include "tests/support/parity.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "ipc/base/check.hpp"

namespace paceline::testing {
namespace {

Error bad_golden(const std::string& path, const std::string& what) {
    return Error{Errc::BadFile, path + ": " + what};
}

Result<std::vector<float>> read_floats(const std::string& path, std::size_t count) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad_golden(path, "cannot be read");
    std::vector<float> values(count);
    const auto bytes = static_cast<std::streamsize>(count * sizeof(float));
    file.read(reinterpret_cast<char*>(values.data()), bytes);
    if (file.gcount() != bytes || file.peek() != std::ifstream::traits_type::eof()) {
        return bad_golden(path, "is not the " + std::to_string(bytes) +
                                    " bytes that tokens and vocab_size of its .json demand");
    }
    return values;
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

/// One batch through one segment: rows of positions [begin, begin + rows of `hidden`).
void run_batch(Backend& segment,
               std::span<const TokenId> batch,
               Position begin,
               std::span<const KvSlot> slots,
               std::span<float> hidden) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const Position position = begin + static_cast<Position>(i);
        rows.push_back(sequence_row(segment, batch[i], position, slots));
    }
    PACE_CHECK(segment.run_layers(rows, hidden, nullptr) == RunOutcome::Done,
               "a parity run is not cancelled");
}

}  // namespace

std::vector<std::string> golden_names() {
    return {"llama-f32",   "llama-untied-f16", "llama-linear-bf16",  "llama-yarn-f16",
            "llama3-bf16", "mistral-q8_0",     "qwen2-f16",          "qwen3-bf16",
            "llama-q4_0",  "llama-q4_1",       "llama-small-blocks", "llama-q4_k_m",
            "qwen3-k-mix", "tiny-chat",        "llama-bias-f16",     "phi3-f16"};
}

Result<Golden> read_golden(const std::string& stem) {
    const std::string path = stem + ".golden.json";
    std::ifstream file(path);
    if (!file) return bad_golden(path, "cannot be read");
    Golden golden;
    golden.name = stem.substr(folder_of(stem).size());
    try {
        const nlohmann::json json = nlohmann::json::parse(file);
        golden.model_path = folder_of(stem) + json.at("model").get<std::string>();
        golden.vocab_size = json.at("vocab_size").get<int>();
        golden.tokens = json.at("tokens").get<std::vector<TokenId>>();
        golden.argmax = json.at("argmax").get<std::vector<TokenId>>();
        golden.continuation = json.at("continuation").get<std::vector<TokenId>>();
        golden.continuation_margin = json.at("continuation_margin").get<double>();
    } catch (const nlohmann::json::exception& problem) {
        return bad_golden(path, problem.what());
    }
    Result<std::vector<float>> logits = read_floats(
        stem + ".golden.f32", golden.tokens.size() * static_cast<std::size_t>(golden.vocab_size));
    if (!logits) return logits.error();
    golden.logits = std::move(logits).value();
    return golden;
}

Golden load_golden(const std::string& fixtures, const std::string& name) {
    Result<Golden> golden = read_golden(fixtures + "/models/" + name);
    PACE_CHECK(golden.ok(), "a fixture of the source tree can be read");
    return std::move(golden).value();
}

std::vector<KvSlot> home_slots(std::size_t count) {
    std::vector<KvSlot> slots(count);
    for (std::size_t p = 0; p < count; ++p) slots[p] = static_cast<KvSlot>(p);
    return slots;
}

std::vector<KvSlot> scattered_slots(std::size_t count, std::int32_t kv_slots) {
    PACE_CHECK(count <= static_cast<std::size_t>(kv_slots), "as many slots as positions");
    std::vector<KvSlot> slots = home_slots(static_cast<std::size_t>(kv_slots));
    std::uint64_t state = 12345;  // Knuth's MMIX generator: the same everywhere
    for (std::size_t i = slots.size(); i > 1; --i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        std::swap(slots[i - 1], slots[(state >> 33U) % i]);
    }
    slots.resize(count);
    return slots;
}

Row sequence_row(const Backend& backend,
                 TokenId token,
                 Position position,
                 std::span<const KvSlot> slots) {
    Row row;
    row.token = token;
    row.position = position;
    row.slot = slots[static_cast<std::size_t>(position)];
    row.prefix_slots = slots.data();
    row.prefix_count = position + 1;
    row.first = 2 * backend.first_layer();
    row.last = 2 * backend.last_layer();
    return row;
}

std::vector<float> sequence_logits(std::span<Backend* const> segments,
                                   std::span<const TokenId> tokens,
                                   int batch_rows,
                                   std::span<const KvSlot> slots) {
    PACE_CHECK(!segments.empty() && batch_rows > 0, "a model has segments, a batch has rows");
    Backend& last = *segments.back();
    const auto dim = static_cast<std::size_t>(last.config().dim);
    const auto vocab_size = static_cast<std::size_t>(last.config().vocab_size);
    std::vector<float> logits(tokens.size() * vocab_size);
    for (std::size_t begin = 0; begin < tokens.size();) {
        const std::size_t rows =
            std::min(static_cast<std::size_t>(batch_rows), tokens.size() - begin);
        std::vector<float> hidden(rows * dim);
        for (Backend* segment : segments) {
            run_batch(*segment, tokens.subspan(begin, rows), static_cast<Position>(begin), slots,
                      hidden);
        }
        last.head(HeadId::Final, hidden, static_cast<int>(rows),
                  std::span(logits).subspan(begin * vocab_size, rows * vocab_size));
        begin += rows;
    }
    return logits;
}

std::vector<float> sequence_logits(Backend& backend,
                                   std::span<const TokenId> tokens,
                                   int batch_rows) {
    Backend* const segments[] = {&backend};
    return sequence_logits(segments, tokens, batch_rows, home_slots(tokens.size()));
}

Deviation deviation(std::span<const float> got, std::span<const float> want, int vocab_size) {
    const auto width = static_cast<std::size_t>(vocab_size);
    PACE_CHECK(got.size() == want.size() && got.size() % width == 0, "both are [rows, vocab_size]");
    Deviation worst;
    for (std::size_t start = 0; start < want.size(); start += width) {
        double largest = 0.0;
        for (std::size_t i = 0; i < width; ++i) {
            largest = std::max(largest, std::abs(static_cast<double>(want[start + i])));
        }
        for (std::size_t i = 0; i < width; ++i) {
            const double error = std::abs(static_cast<double>(got[start + i]) -
                                          static_cast<double>(want[start + i]));
            double relative = error / largest;
            if (std::isnan(relative)) relative = std::numeric_limits<double>::infinity();
            if (relative > worst.relative) {
                worst = {relative, static_cast<int>(start / width), static_cast<int>(i)};
            }
        }
    }
    return worst;
}

std::vector<TokenId> argmax_of_rows(std::span<const float> logits, int vocab_size) {
    const auto width = static_cast<std::size_t>(vocab_size);
    std::vector<TokenId> winners;
    for (std::size_t start = 0; start < logits.size(); start += width) {
        const std::span<const float> row = logits.subspan(start, width);
        winners.push_back(
            static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    return winners;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace paceline::testing
