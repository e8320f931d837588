#include <map>
#include <string>

#include "bridge/bridge.h"
#include "bridge/module.h"
#include "runtime/config_file.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace fl::bridge {

namespace {

py::list all_settings() {
  py::list list;
  for (const Setting& s : settings()) {
    py::dict row("name"_a = s.name, "environment"_a = s.environment, "default"_a = s.fallback_value,
                 "allowed"_a = s.allowed, "sentence"_a = s.sentence, "value"_a = py::none(),
                 "refusal"_a = py::none(), "source"_a = setting_source(s.name));
    try {
      row["value"] = setting(s.name);
    } catch (const Error& error) {
      row["refusal"] = error.what();
    }
    list.append(row);
  }
  return list;
}

// Operators that ran at least once.  One name may have several Op objects
// (one in each file that runs it): they are added up.
py::dict op_report() {
  struct Row {
    uint64_t native = 0, composed = 0, fallback = 0, bytes = 0, ns = 0;
    const char* first_call_site = nullptr;
  };
  std::map<std::string, Row> rows;
  for (const Op* op = first_op(); op; op = op->next) {
    const uint64_t native = op->native, composed = op->composed, fallback = op->fallback;
    if (!(native | composed | fallback)) continue;
    Row& row = rows[op->name];
    row.native += native;
    row.composed += composed;
    row.fallback += fallback;
    row.bytes += op->fallback_bytes;
    row.ns += op->fallback_ns;
    if (!row.first_call_site) row.first_call_site = op->first_call_site;
  }
  py::dict report;
  for (const auto& [name, row] : rows)
    report[py::str(name)] = py::dict(
        "native"_a = row.native, "composed"_a = row.composed, "fallback"_a = row.fallback,
        "fallback_bytes"_a = row.bytes, "fallback_seconds"_a = static_cast<double>(row.ns) * 1e-9,
        "first_call_site"_a = row.first_call_site ? py::object(py::str(row.first_call_site)) : py::none());
  return report;
}

void reset_op_report() {
  for (Op* op = first_op(); op; op = op->next) {
    for (auto* count : {&op->native, &op->composed, &op->fallback, &op->fallback_bytes, &op->fallback_ns})
      count->store(0, std::memory_order_relaxed);
    op->first_call_site = nullptr;
  }
}

}  // namespace

void bind_settings(py::module& m) {
  m.def("settings", &all_settings);
  m.def("get_setting", &setting, "name"_a);
  m.def("set_setting", &set_setting, "name"_a, "value"_a);
  m.def("op_report", &op_report);
  m.def("reset_op_report", &reset_op_report);
  m.def("log", [](int level, const std::string& text) { log(level, text); }, "level"_a, "text"_a);
  m.def("user_line", [] {
    const char* line = user_line();
    return line ? py::object(py::str(line)) : py::object(py::none());
  });
}

}  // namespace fl::bridge
