#include "launches.h"

#include <algorithm>

namespace kit {

std::vector<Arrangement> arrangements() {
  std::vector<Arrangement> all;
  for (Layout in : kInputLayouts) all.push_back({in, Layout::contiguous});
  for (Layout out : kOutputLayouts)
    if (out != Layout::contiguous) all.push_back({Layout::contiguous, out});
  all.push_back({Layout::transposed, Layout::negative});
  return all;
}

std::string arrangement_text(Arrangement a) {
  return text("in %s, out %s", layout_name(a.in), layout_name(a.out));
}

const std::vector<std::vector<int64_t>> kShapes = {{1},
                                                   {7},
                                                   {3, 5},
                                                   {2, 3, 4},
                                                   {70001},
                                                   {2, 1, 3, 2},
                                                   {2, 2, 1, 2, 3},
                                                   {2, 1, 2, 3, 1, 2},
                                                   {},
                                                   {1, 2, 1, 1, 2, 1, 3, 1, 1, 2, 1, 1, 2, 1, 1, 2}};

fl_scalar scalar(unsigned type, Number value) {
  fl_scalar s{};
  if (is_integer(type)) s.v.i = value.i;
  else s.v.f = static_cast<double>(value.re), s.imag = static_cast<double>(value.im);
  return s;
}

std::vector<Array> run_pointwise(Session& session, const fl_program* program,
                                 const std::vector<Array>& inputs, const std::vector<int64_t>& sizes,
                                 const std::vector<unsigned>& outputs, Arrangement arrangement,
                                 const std::vector<fl_scalar>& scalars,
                                 std::vector<std::vector<Number>>* want) {
  std::vector<Array> arrays = inputs;
  std::vector<Tensor> in, out;
  std::vector<fl_tensor> in_views, out_views;
  for (Array& a : arrays) {
    if (arrangement.in == Layout::broadcast) a = constant_along_first(a);
    in.push_back(session.put(a, arrangement.in));
  }
  for (unsigned d : outputs) out.push_back(session.output(d, sizes, arrangement.out));
  for (Tensor& t : in) in_views.push_back(*t);
  for (Tensor& t : out) out_views.push_back(*t);
  fl_pointwise_args args{program, in_views.data(), out_views.data(), scalars.data()};
  ok(KIT_LAUNCH(pointwise, &session.launch, &args), "pointwise");
  std::vector<Array> results;
  for (Tensor& t : out) results.push_back(session.get(t));
  if (want) {
    int64_t n = product(sizes);
    want->assign(outputs.size(), std::vector<Number>(n));
    std::vector<Number> values(arrays.size()), made;
    bool indexed = std::any_of(program->code, program->code + program->n_code,
                               [](const fl_instr& o) { return o.op == FL_OP_INDEX; });
    std::vector<int64_t> at;
    for (int64_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < arrays.size(); ++k) values[k] = arrays[k].at(i);
      if (indexed) at = coordinates(i, sizes);
      reference_program(program, scalars.data(), values, at, sizes, made);
      for (size_t k = 0; k < outputs.size(); ++k) (*want)[k][i] = made[k];
    }
  }
  return results;
}

void check_pointwise(Session& session, const fl_program* program, const std::vector<Array>& inputs,
                     const std::vector<int64_t>& sizes, const std::vector<unsigned>& outputs,
                     Tolerance tolerance, Arrangement arrangement, const std::vector<fl_scalar>& scalars) {
  std::vector<std::vector<Number>> want;
  std::vector<Array> got =
      run_pointwise(session, program, inputs, sizes, outputs, arrangement, scalars, &want);
  for (size_t k = 0; k < got.size(); ++k)
    expect_close(
        got[k], want[k], tolerance,
        text("output %zu of %s, %s", k, shape_text(sizes).c_str(), arrangement_text(arrangement).c_str()));
}

unsigned result_type(unsigned op, unsigned type) {
  return is_comparison(op) ? static_cast<unsigned>(FL_BOOL) : type;
}

const fl_program* program_of(unsigned op, unsigned type) {
  fl::Builder b;
  uint8_t t = static_cast<uint8_t>(type), first = op == FL_OP_SELECT ? static_cast<uint8_t>(FL_BOOL) : t;
  uint16_t code = static_cast<uint16_t>(op);
  fl::Value x = b.load(0, first), r = x;
  switch (operand_count(op)) {
    case 1:
      r = b.op(code, x);
      break;
    case 2:
      r = b.op(code, x, b.load(1, t));
      break;
    default:
      r = op == FL_OP_SELECT ? b.select(x, b.load(1, t), b.load(2, t))
                             : b.op(code, x, b.load(1, t), b.load(2, t));
  }
  b.store(0, r, static_cast<uint8_t>(result_type(op, type)));
  return b.finish();
}

Array indices(unsigned dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& values) {
  Array a(dtype, sizes);
  for (int64_t i = 0; i < a.numel(); ++i) a.set(i, Number::integer(values[i]));
  return a;
}

}  // namespace kit
