// What stands for Next in example_chats.test.mjs: the page of its example, in a page of Vite.

import { createRoot } from 'react-dom/client';

import Page from '../../../examples/next/app/page';
import '../../../examples/next/app/style.css';

createRoot(document.getElementById('root')).render(<Page />);
