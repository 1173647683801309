#include "launch/plan/method_record.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <span>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "launch/base/build_info.hpp"
#include "launch/base/text_input.hpp"
#include "model/weights/fingerprint.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;
constexpr int kFormat = 2;
constexpr const char* kSuffix = ".json";
constexpr std::int64_t kRunsKept = 1'000'000'000;

bool positive(double value) {
    return value > 0.0 && std::isfinite(value);
}

std::optional<MethodRate> parsed_rate(const nlohmann::json& entry) {
    if (!entry.is_object()) return std::nullopt;
    const auto number = [&entry](const char* name) {
        const auto found = entry.find(name);
        return found != entry.end() && found->is_number() ? found->get<double>() : -1.0;
    };
    const auto runs = entry.find("runs");
    if (runs == entry.end() || !runs->is_number_integer()) return std::nullopt;
    const MethodRate rate{.gain = number("gain"),
                          .acceptance = number("acceptance"),
                          .tokens_per_second = number("tokens_per_second"),
                          .runs = runs->get<std::int64_t>()};
    const bool fits = positive(rate.gain) && positive(rate.tokens_per_second) &&
                      rate.acceptance >= 0.0 && rate.acceptance <= 1.0 && rate.runs > 0 &&
                      rate.runs <= kRunsKept;
    return fits ? std::optional{rate} : std::nullopt;
}

std::optional<MethodRecord> parsed(const std::string& text, const std::string& key) {
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || json.value("format", nlohmann::json{}) != kFormat ||
        json.value("key", nlohmann::json{}) != key) {
        return std::nullopt;
    }
    const auto methods = json.find("methods");
    if (methods == json.end() || !methods->is_object()) return std::nullopt;
    MethodRecord record;
    for (const auto& [name, entry] : methods->items()) {
        const std::optional<MethodRate> rate = parsed_rate(entry);
        if (!rate || record.methods.size() >= MethodRecord::kMethodsMax) return std::nullopt;
        record.methods[name] = *rate;
    }
    const auto plain = json.find("plain_runs");
    if (plain != json.end() && plain->is_number_integer()) record.add_plain(plain->get<int64_t>());
    return record;
}

}  // namespace

void MethodRecord::add(std::string_view method, const MethodRate& run) {
    if (!positive(run.gain) || !positive(run.tokens_per_second) || run.runs <= 0) return;
    plain_runs = 0;
    const auto known = methods.find(method);
    if (known == methods.end()) {
        if (methods.size() < kMethodsMax) methods.emplace(method, run);
        return;
    }
    MethodRate& rate = known->second;
    const double weight = 1.0 - std::pow(1.0 - kNew, static_cast<double>(run.runs));
    rate.gain += weight * (run.gain - rate.gain);
    rate.tokens_per_second += weight * (run.tokens_per_second - rate.tokens_per_second);
    if (run.acceptance > 0.0) {
        const double old = rate.acceptance > 0.0 ? rate.acceptance : run.acceptance;
        rate.acceptance = old + (weight * (run.acceptance - old));
    }
    rate.runs = std::min(rate.runs + run.runs, kRunsKept);
}

void MethodRecord::add_plain(std::int64_t runs) {
    plain_runs = std::min(plain_runs + std::clamp<std::int64_t>(runs, 0, kRunsKept), kRunsKept);
}

const MethodRate* MethodRecord::find(std::string_view method) const {
    const auto found = methods.find(method);
    return found == methods.end() ? nullptr : &found->second;
}

std::string record_key(const ModelFile& file,
                       const ModelOptions& model,
                       const std::string& draft_model,
                       std::size_t cores) {
    std::string draft = draft_model;
    std::error_code error;
    if (!draft.empty()) draft += fmt::format(":{}", fs::file_size(draft, error));
    return fmt::format(
        "model {:016x} lora {} parts {} draft {} dtype {} kv {} isa {} device {} threads {} cores "
        "{} program {} {}",
        file.fingerprint(), model.lora, model.parts, draft, model.dtype, model.kv_dtype, model.isa,
        model.device, model.threads, cores, build_info().version, build_info().commit);
}

MethodRecords::MethodRecords(const std::string& folder)
    : folder_{folder.empty() ? std::string{} : folder + "/methods"} {}

std::string MethodRecords::path_of(const std::string& key) const {
    return fmt::format("{}/{:016x}{}", folder_, fingerprint_of(std::as_bytes(std::span{key})),
                       kSuffix);
}

MethodRecord MethodRecords::read(const std::string& key) const {
    if (folder_.empty()) return {};
    std::error_code error;
    const std::string path = path_of(key);
    if (!fs::is_regular_file(path, error)) return {};
    const Result<std::string> text = read_file(path, kBytesMax);
    if (!text) return {};
    return parsed(text.value(), key).value_or(MethodRecord{});
}

bool MethodRecords::write(const std::string& key, const MethodRecord& record) const {
    if (folder_.empty()) return false;
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) return false;
    nlohmann::json json{{"format", kFormat},
                        {"key", key},
                        {"methods", nlohmann::json::object()},
                        {"plain_runs", record.plain_runs}};
    for (const auto& [name, rate] : record.methods)
        json["methods"][name] = {{"gain", rate.gain},
                                 {"acceptance", rate.acceptance},
                                 {"tokens_per_second", rate.tokens_per_second},
                                 {"runs", rate.runs}};
    const std::string path = path_of(key);
    const std::string unfinished = fmt::format("{}.{}", path, ::getpid());
    {
        std::ofstream out{unfinished, std::ios::binary | std::ios::trunc};
        out << json.dump(1) << '\n';
        out.close();
        if (!out) {
            fs::remove(unfinished, error);
            return false;
        }
    }
    fs::rename(unfinished, path, error);
    if (error) {
        fs::remove(unfinished, error);
        return false;
    }
    remove_oldest();
    return true;
}

void MethodRecords::remove_oldest() const {
    std::error_code error;
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    // Not by a range: its steps throw.
    for (fs::directory_iterator at{folder_, error}; !error && at != fs::directory_iterator{};
         at.increment(error)) {
        std::error_code gone;  // another process may remove files
        if (at->path().extension() != kSuffix || !at->is_regular_file(gone)) continue;
        const fs::file_time_type time = at->last_write_time(gone);
        if (!gone) files.emplace_back(time, at->path());
    }
    if (files.size() <= kRecordsMax) return;
    std::sort(files.begin(), files.end());
    files.resize(files.size() - kRecordsMax);
    for (const auto& [time, path] : files) fs::remove(path, error);
}

}  // namespace paceline
