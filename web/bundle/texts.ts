/** The texts of the page in each language; `{name}` is replaced by a value. */

const en = {
  language: "中文",
  summary: "Version {version}. All answers are computed in this page; nothing is sent.",
  loading: "Loading {size} MB …",
  id: "Id",
  node_type: "Type",
  find: "Find",
  nearest: "Nearest {type} of {id}",
  classes: "Classes of {id}",
  class: "Class",
  probability: "Probability",
  rank: "Rank",
  score: "Score",
  computed: "Computed in {ms} ms from {rows} rows.",
  ran: "Computed in {ms} ms.",
  inputs: "Inputs, as JSON",
  run: "Run",
  unknown_id: "There is no {type} with the id “{id}”.",
  absent_file: "{path} cannot be loaded: {reason}.",
  wrong_size: "{path} has {received} bytes instead of {expected}. Build the bundle again.",
  wrong_array: "{path} is not an array of {expected}. Build the bundle again.",
  wrong_bundle: "bundle.json is of another format. Build the bundle again.",
  too_many_neighbors: "The neighbors of “{id}” do not fit into the memory of a page.",
  wrong_input: "Input “{name}”: expected {expected}.",
  predict: "Predict",
  predicted: "Probability",
  unseen: "No value of these columns was learnt, so they add nothing: {columns}.",
  kind_number: "number",
  kind_integer: "integer",
  kind_categorical: "category",
  kind_boolean: "yes or no",
  kind_slots: "values separated by |",
  kind_vector: "{dim} numbers separated by commas",
  wrong_number: "{column}: expected a number, or nothing, received “{value}”.",
  wrong_integer: "{column}: expected an integer of 64 bits, received “{value}”.",
  wrong_slots: "{column}: expected values separated by |, none of them empty, received “{value}”.",
  wrong_vector: "{column}: expected {dim} numbers separated by commas, received “{value}”.",
  relation: "Relation",
  asks_for: "Find",
  tails: "Tails ({type})",
  heads: "Heads ({type})",
  id_of: "Id ({type})",
  answers: "Answers",
  with_known: "Known links too",
  known: "Known",
  is_known: "yes",
  no_answers: "There is no answer that is not known already.",
  wrong_json: "The inputs are not a JSON list of objects with name, shape and data.",
  failed: "The page failed: {reason}",
};

export type TextKey = keyof typeof en;

const zh: Record<TextKey, string> = {
  language: "English",
  summary: "版本 {version}。所有结果都在本页面内计算，不会发送任何数据。",
  loading: "正在加载 {size} MB …",
  id: "ID",
  node_type: "类型",
  find: "查找",
  nearest: "{id} 的最近邻 ({type})",
  classes: "{id} 的类别",
  class: "类别",
  probability: "概率",
  rank: "排名",
  score: "得分",
  computed: "用时 {ms} 毫秒，共 {rows} 行。",
  ran: "用时 {ms} 毫秒。",
  inputs: "输入 (JSON)",
  run: "运行",
  unknown_id: "没有 ID 为“{id}”的 {type}。",
  absent_file: "无法加载 {path}：{reason}。",
  wrong_size: "{path} 应为 {expected} 字节，实为 {received} 字节。请重新构建。",
  wrong_array: "{path} 不是 {expected} 的数组。请重新构建。",
  wrong_bundle: "bundle.json 的格式不符。请重新构建。",
  too_many_neighbors: "“{id}” 的邻居太多，页面内存放不下。",
  wrong_input: "输入“{name}”：应为 {expected}。",
  predict: "预测",
  predicted: "概率",
  unseen: "以下列的值在训练中未出现，不影响结果：{columns}。",
  kind_number: "数值",
  kind_integer: "整数",
  kind_categorical: "类别",
  kind_boolean: "是或否",
  kind_slots: "多个值用 | 分隔",
  kind_vector: "{dim} 个数值，用逗号分隔",
  wrong_number: "{column}：应为数值或留空，实为“{value}”。",
  wrong_integer: "{column}：应为 64 位整数，实为“{value}”。",
  wrong_slots: "{column}：应为用 | 分隔的非空值，实为“{value}”。",
  wrong_vector: "{column}：应为用逗号分隔的 {dim} 个数值，实为“{value}”。",
  relation: "关系",
  asks_for: "查找",
  tails: "尾实体 ({type})",
  heads: "头实体 ({type})",
  id_of: "ID ({type})",
  answers: "答案数",
  with_known: "包含已知关系",
  known: "已知",
  is_known: "是",
  no_answers: "没有未知的答案。",
  wrong_json: "输入应为 JSON 列表，每个对象含 name、shape 和 data。",
  failed: "页面出错：{reason}",
};

export const LANGUAGES = { en, "zh-CN": zh };
export type Language = keyof typeof LANGUAGES;

/** The text of a key in the page's language. */
export type Text = (key: TextKey, values?: Record<string, string | number>) => string;

export const preferredLanguage = (): Language =>
  navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";

export function text(
  language: Language,
  key: TextKey,
  values: Record<string, string | number> = {},
): string {
  return LANGUAGES[language][key].replace(/\{(\w+)\}/g, (placeholder, name: string) =>
    name in values ? String(values[name]) : placeholder,
  );
}
