#include "runtime/simulation/cost_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr std::array<std::string_view, 8> kColumns{
    "stage", "fingerprint", "layers", "rows", "context", "threads", "neighbours", "seconds"};
constexpr std::uint32_t kNumberMax = 1U << 30U;
constexpr double kSecondsMax = 86'400.0;

std::vector<std::string_view> split(std::string_view line) {
    std::vector<std::string_view> fields;
    for (std::size_t begin = 0;;) {
        const std::size_t end = line.find('\t', begin);
        fields.push_back(line.substr(begin, end - begin));
        if (end == std::string_view::npos) return fields;
        begin = end + 1;
    }
}

/// One line, and where it stands, for errors.
class Line {
public:
    Line(const std::string& file, std::size_t number, std::vector<std::string_view> fields)
        : file_{file}, number_{number}, fields_{std::move(fields)} {}

    [[nodiscard]] Error wrong(const std::string& what) const {
        return {Errc::BadFile, fmt::format("{}:{}: {}", file_, number_, what)};
    }
    [[nodiscard]] std::size_t fields() const { return fields_.size(); }
    [[nodiscard]] std::string_view field(std::size_t column) const { return fields_[column]; }
    [[nodiscard]] Result<std::string> text(std::size_t column) const {
        if (!fields_[column].empty()) return std::string{fields_[column]};
        return wrong(std::string{kColumns[column]} + " is empty; write - if there is none");
    }
    template <class Number>
    [[nodiscard]] Result<Number> number(std::size_t column, Number low, Number high) const {
        const std::string_view field = fields_[column];
        Number value{};
        const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
        const bool whole = code == std::errc{} && end == field.data() + field.size();
        // Written so that NaN is refused too.
        if (whole && value >= low && value <= high) return value;
        return wrong(fmt::format("{} = '{}', must be a number from {} to {}", kColumns[column],
                                 field, low, high));
    }

private:
    const std::string& file_;
    std::size_t number_;
    std::vector<std::string_view> fields_;
};

Result<CostRecord> parse_record(const Line& line) {
    if (line.fields() != kColumns.size()) {
        return line.wrong(fmt::format("{} fields, must be {}, separated by tabs", line.fields(),
                                      kColumns.size()));
    }
    CostRecord record;
    Result<std::string> stage = line.text(0);
    if (!stage) return stage.error();
    record.stage = std::move(stage).value();
    Result<std::string> fingerprint = line.text(1);
    if (!fingerprint) return fingerprint.error();
    record.fingerprint = std::move(fingerprint).value();
    const std::array<std::uint32_t*, 5> numbers{&record.layers, &record.rows, &record.context,
                                                &record.threads, &record.neighbours};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::uint32_t low = numbers[i] == &record.rows ? 1 : 0;
        const Result<std::uint32_t> number = line.number<std::uint32_t>(2 + i, low, kNumberMax);
        if (!number) return number.error();
        *numbers[i] = number.value();
    }
    const Result<double> seconds = line.number<double>(7, 0.0, kSecondsMax);
    if (!seconds) return seconds.error();
    record.seconds = seconds.value();
    return record;
}

std::uint32_t distance(std::uint32_t a, std::uint32_t b) {
    return a > b ? a - b : b - a;
}

/// The value at `x` of points sorted by x: between two of them interpolated, beyond them clamped.
double interpolate(const std::map<std::uint32_t, double>& points, std::uint32_t x) {
    const auto above = points.lower_bound(x);
    if (above == points.end()) return std::prev(above)->second;
    if (above->first == x || above == points.begin()) return above->second;
    const auto below = std::prev(above);
    const double share =
        static_cast<double>(x - below->first) / static_cast<double>(above->first - below->first);
    return below->second + share * (above->second - below->second);
}

/// Of a batch of `rows` rows. A batch of prefill may be longer than any that was measured.
double at_rows(const std::map<std::uint32_t, double>& points, std::uint32_t rows) {
    const double seconds = interpolate(points, rows);
    const std::uint32_t busy_from = std::max(points.rbegin()->first, kVerifyRowsMax);
    return rows <= busy_from ? seconds : seconds * static_cast<double>(rows) / busy_from;
}

}  // namespace

Result<CostTable> CostTable::parse(std::string_view text, const std::string& name) {
    std::vector<CostRecord> records;
    bool named = false;
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view content = text.substr(begin, end - begin);
        begin = end + 1;
        ++number;
        if (!content.empty() && content.back() == '\r') content.remove_suffix(1);
        if (content.empty() || content.front() == '#') continue;
        const Line line{name, number, split(content)};
        if (!named) {
            named = true;
            bool right = line.fields() == kColumns.size();
            for (std::size_t i = 0; right && i < kColumns.size(); ++i) {
                right = line.field(i) == kColumns[i];
            }
            if (right) continue;
            return line.wrong(
                "the first line must name the columns: stage, fingerprint, layers, "
                "rows, context, threads, neighbours, seconds, separated by tabs");
        }
        Result<CostRecord> record = parse_record(line);
        if (!record) return record.error();
        records.push_back(std::move(record).value());
    }
    if (records.empty()) return Error{Errc::BadFile, name + ": a cost table without records"};
    return of(std::move(records));
}

CostTable CostTable::of(std::vector<CostRecord> records) {
    CostTable table;
    table.records_ = std::move(records);
    return table;
}

bool CostTable::knows(std::string_view stage, std::string_view fingerprint) const {
    return std::any_of(records_.begin(), records_.end(), [&](const CostRecord& record) {
        return record.stage == stage && record.fingerprint == fingerprint;
    });
}

Result<double> CostTable::seconds(const CostRecord& wanted) const {
    const auto far = [&](const CostRecord& record) {
        return std::array{distance(record.threads, wanted.threads),
                          distance(record.neighbours, wanted.neighbours),
                          record.layers == 0 ? 0 : distance(record.layers, wanted.layers)};
    };
    const CostRecord* nearest = nullptr;
    for (const CostRecord& record : records_) {
        if (record.stage != wanted.stage || record.fingerprint != wanted.fingerprint) continue;
        if (nearest == nullptr || far(record) < far(*nearest)) nearest = &record;
    }
    if (nearest == nullptr) {
        return Error{Errc::BadArgument, "the cost table has no record of stage '" + wanted.stage +
                                            "' of model '" + wanted.fingerprint + "'"};
    }
    // By context, then by rows: the grid may have holes.
    std::map<std::uint32_t, std::map<std::uint32_t, double>> grid;
    for (const CostRecord& record : records_) {
        const bool same =
            record.stage == wanted.stage && record.fingerprint == wanted.fingerprint &&
            record.threads == nearest->threads && record.neighbours == nearest->neighbours &&
            record.layers == nearest->layers;
        if (same) grid[record.context][record.rows] = record.seconds;
    }
    std::map<std::uint32_t, double> at_contexts;
    for (const auto& [context, rows] : grid) at_contexts[context] = at_rows(rows, wanted.rows);
    const double seconds = interpolate(at_contexts, wanted.context);
    if (nearest->layers == 0 || wanted.layers == 0) return seconds;
    return seconds * static_cast<double>(wanted.layers) / static_cast<double>(nearest->layers);
}

}  // namespace paceline
