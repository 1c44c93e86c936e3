// VitePress' own theme with a few rules of ours.

import DefaultTheme from 'vitepress/theme';

import './style.css';

export default DefaultTheme;
