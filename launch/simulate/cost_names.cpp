#include "launch/simulate/cost_names.hpp"

#include <cstdio>
#include <filesystem>
#include <fmt/core.h>

namespace paceline {

std::string cost_name(const std::string& model_path, const std::string& dtype, int short_list) {
    std::string name = std::filesystem::path{model_path}.stem().string();
    if (name.empty()) name = "model";
    // Fields of the table end at a tab, and '#' begins a comment.
    for (char& c : name) {
        if (c == '\t' || c == '\n' || c == '\r' || c == '#') c = '_';
    }
    name += ":" + dtype;
    if (short_list > 0) name += fmt::format(":{}", short_list);
    return name;
}

std::string cost_name(const ModelFile& file, const std::string& dtype, int short_list) {
    if (file.lora() == nullptr) return cost_name(file.path(), dtype, short_list);
    const auto stem = [](const std::string& path) { return std::filesystem::path{path}.stem(); };
    const std::string both = stem(file.path()).string() + "+" + stem(file.lora()->path).string();
    return cost_name(both + ".gguf", dtype, short_list);
}

std::string cost_table_text(const std::vector<CostRecord>& records,
                            const std::vector<std::string>& remarks) {
    std::string text;
    for (const std::string& remark : remarks) text += "# " + remark + "\n";
    text += "stage\tfingerprint\tlayers\trows\tcontext\tthreads\tneighbours\tseconds\n";
    for (const CostRecord& record : records) {
        char seconds[32];
        std::snprintf(seconds, sizeof seconds, "%.9f", record.seconds);
        text += record.stage + "\t" + record.fingerprint;
        for (const std::uint32_t number :
             {record.layers, record.rows, record.context, record.threads, record.neighbours}) {
            text += fmt::format("\t{}", number);
        }
        text += std::string{"\t"} + seconds + "\n";
    }
    return text;
}

CostTable scaled(const CostTable& table, const std::string& stage, double factor) {
    std::vector<CostRecord> records = table.records();
    for (CostRecord& record : records) {
        if (record.stage == stage) record.seconds *= factor;
    }
    return CostTable::of(std::move(records));
}

}  // namespace paceline
