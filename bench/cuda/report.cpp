#include "bench/cuda/report.hpp"

#include <cmath>
#include <cstdio>
#include <fmt/core.h>
#include <fstream>
#include <memory>

#include <nlohmann/json.hpp>

namespace paceline::bench {
namespace {

void print_row(const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) std::printf("| %s ", cell.c_str());
    std::printf("|\n");
}

}  // namespace

std::string fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

void Report::say(const std::string& name, const std::string& value) {
    head_.emplace_back(name, value);
    std::printf("%s: %s\n", name.c_str(), value.c_str());
    std::fflush(stdout);
}

void Report::add(const Table& table) {
    std::printf("\n### %s\n\n", table.title.c_str());
    print_row(table.header);
    std::printf("|---|");
    for (std::size_t i = 1; i < table.header.size(); ++i) std::printf("---:|");
    std::printf("\n");
    for (const auto& row : table.rows) print_row(row);
    std::fflush(stdout);
    tables_.push_back(table);
}

void Report::figure(const std::string& name, double value) {
    figures_[name] = value;
    if (!std::isfinite(value)) fault("the figure " + name + " is not a finite number");
}

void Report::fault(const std::string& what) {
    faults_.push_back(what);
    std::printf("FAULT: %s\n", what.c_str());
    std::fflush(stdout);
}

Status Report::verdict() const {
    if (faults_.empty()) return {};
    return Error{Errc::System,
                 fmt::format("wrong results: {}, the first: {}", faults_.size(), faults_.front())};
}

double Report::figure(const std::string& name) const {
    const auto found = figures_.find(name);
    return found == figures_.end() ? 0.0 : found->second;
}

Status Report::write_json(const std::string& path) const {
    nlohmann::ordered_json all;
    for (const auto& [name, value] : head_) all[name] = value;
    all["figures"] = figures_;
    all["faults"] = faults_;
    for (const Table& table : tables_)
        all["tables"].push_back(
            {{"title", table.title}, {"header", table.header}, {"rows", table.rows}});
    std::ofstream file{path};
    file << all.dump(1) << "\n";
    if (!file.flush()) return Error{Errc::System, path + " cannot be written"};
    return {};
}

std::string first_line_of(const std::string& command) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe{
        ::popen((command + " 2>/dev/null").c_str(), "r"), &::pclose};
    if (pipe == nullptr) return {};
    char line[512];
    if (std::fgets(line, sizeof line, pipe.get()) == nullptr) return {};
    std::string text{line};
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    return text;
}

}  // namespace paceline::bench
