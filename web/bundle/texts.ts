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
  wrong_json: "输入应为 JSON 列表，每个对象含 name、shape 和 data。",
  failed: "页面出错：{reason}",
};

export const LANGUAGES = { en, "zh-CN": zh };
export type Language = keyof typeof LANGUAGES;

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
